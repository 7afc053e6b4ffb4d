"""The facts of published data sets, one record each. Nothing here imports torch.

Counts are those of publishers' pages, of released lists and of exact fractions in released logs. Where only
one source is known, or none, ``unconfirmed`` says so.
"""

from __future__ import annotations

from types import MappingProxyType

import attrs

from lw2g.interfaces.dataset import (
    ByHand,
    DataSet,
    HubRoute,
    RemoteFile,
    Split,
    TorchvisionRoute,
)

__all__ = ["CIFAR100", "DATA_SETS", "FIVE_DATASETS"]

_CLASS_FOLDERS = "train/<class>/<image> and test/<class>/<image>"
_DRIVE = "a drive link in the README of github.com/zhoudw-zdw/RevisitingCIL"
_CPROMPT = "https://raw.githubusercontent.com/Zhanxin-Gao/CPrompt/HEAD/data/datautils"
_CODA = "https://raw.githubusercontent.com/GT-RIPL/CODA-Prompt/HEAD/dataloaders/splits"


def _list(name: str, url: str, sha256: str | None = None) -> tuple[RemoteFile, ...]:
    return (RemoteFile(name=name, url=url, checksum=f"sha256:{sha256}" if sha256 else None),)


CIFAR100 = DataSet(
    name="cifar100",
    title="CIFAR-100",
    num_classes=100,
    folder="cifar-100-python",
    layout="train, test and meta",
    splits={"official": Split(reader="arrays", train=50_000, test=10_000, test_sizes=(1_000,) * 10)},
    page="The CIFAR-10 and CIFAR-100 datasets (python version)",
    terms="none stated by the publisher",
    size="169 MB",
    routes=(
        TorchvisionRoute(classes=("CIFAR100",)),
        ByHand(
            where="cifar-100-python.tar.gz of the publisher's page",
            checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
        ),
    ),
    unconfirmed=("hub data set uoft-cs/cifar100: no revision is known, and it is not read",),
)

_IMAGENET_R = DataSet(
    name="imagenet-r",
    title="ImageNet-R",
    num_classes=200,
    folder="imagenet-r",
    layout="<wnid>/<style>_<k>.jpg, all 30,000, or the same below train/ and test/",
    splits={
        "coda": Split(
            reader="lists",
            train=24_000,
            test=6_000,
            train_sha256="6b6014a06e97012adb968b55172d2f672d93ed2e36ce82b45e038ef23886321d",
            test_sha256="9e7f6243e605e2223739b158f26e442480eb940f9e24508bf6c02c939efdcc26",
            test_sizes=(543, 716, 553, 686, 620, 631, 557, 636, 587, 471),
            train_lists=_list(
                "imagenet-r_train.yaml",
                f"{_CODA}/imagenet-r_train.yaml",
                "6bcaa14ca9359915ac3a44c48ae71388146385686eb15da79a37844421a0b845",
            ),
            test_lists=_list(
                "imagenet-r_test.yaml",
                f"{_CODA}/imagenet-r_test.yaml",
                "57275ac242d68983a4f39ccb81ec34f48b1bd920b9cd79e6e8040d7c042db02a",
            ),
        ),
        "folders": Split(
            reader="folders",
            train=24_000,
            test=6_000,
            test_order=1993,
            test_sizes=(
                *(317, 372, 300, 332, 302, 304, 298, 273, 310, 177),
                *(284, 376, 271, 298, 367, 362, 230, 248, 308, 271),
            ),
        ),
        "random:42": Split(
            reader="random",
            train=24_000,
            test=6_000,
            test_sha256="2e5b4fe07c531005be86f08fdf82ac889bc4722f63c9fbf32b7551dd96d02124",
            test_sizes=(650, 750, 427, 576, 716, 558, 557, 445, 627, 694),
        ),
        "random": Split(reader="random", train=24_000, test=6_000),
    },
    page="github.com/hendrycks/imagenet-r",
    terms="none stated; images of many owners, for research",
    size="2.19 GB",
    routes=(
        HubRoute(
            repo="axiong/imagenet-r",
            revision="3df56fda69a6eed3e808373909a64f4a665b1e8f",
            file="imagenet-r.tar",
            checksum="md5:a61312130a589d0ca1a8fca1f2bd3337",
        ),
        ByHand(
            where="imagenet-r.tar of github.com/hendrycks/imagenet-r",
            checksum="md5:a61312130a589d0ca1a8fca1f2bd3337",
        ),
        ByHand(
            where=f"for the split 'folders' the zip behind {_DRIVE}",
            checksum="md5:730aa3fb9c7d2ec0b6381c6b23040681",
        ),
    ),
    flaws="three splits circulate under one name: CODA's list, HiDe's random one, LAMDA's folders",
    unconfirmed=("file list of the split 'folders'", "terms"),
)

_IMAGENET_A = DataSet(
    name="imagenet-a",
    title="ImageNet-A",
    num_classes=200,
    folder="imagenet-a",
    layout=f"{_CLASS_FOLDERS} (LAMDA), or <wnid>/<image> for random:<seed>",
    splits={
        "folders": Split(
            reader="folders",
            train=5_981,
            test=1_519,
            test_order=1993,
            test_sizes=(77, 98, 99, 86, 64, 52, 126, 96, 81, 62, 60, 74, 60, 86, 76, 51, 85, 62, 39, 85),
        ),
        "random": Split(reader="random", train=6_000, test=1_500),
    },
    page="github.com/hendrycks/natural-adv-examples",
    terms="MIT (tag of the hub copy)",
    routes=(
        ByHand(where=f"the re-split zip behind {_DRIVE} (drive id 19l52ua_vvTtttgVRziCZJjal0TPE9f2p)"),
        ByHand(
            where="imagenet-a.tar of github.com/hendrycks/natural-adv-examples, for random:<seed>",
            checksum="md5:c3e55429088dc681f30d81f4726b6595",
        ),
    ),
    flaws="chosen against a ResNet-50; some classes have two or three test images",
    unconfirmed=("checksum and file list of LAMDA's zip", "md5 of imagenet-a.tar rests on other libraries"),
)

_OMNIBENCHMARK = DataSet(
    name="omnibenchmark",
    title="OmniBenchmark (LAMDA, 300 classes)",
    num_classes=300,
    folder="omnibenchmark",
    layout=_CLASS_FOLDERS,
    splits={
        "folders": Split(
            reader="folders",
            train=89_697,
            test=5_985,
            test_order=1993,
            test_sizes=tuple(
                198
                if group == 18
                else 199
                if group in (5, 8, 9, 10, 11, 14, 15, 16, 20, 22, 25, 27, 29)
                else 200
                for group in range(30)
            ),
        )
    },
    page="github.com/ZhangYuanhan-AI/OmniBenchmark",
    terms="CC BY-NC-ND 4.0: fetch it yourself, hand nothing on",
    rehosting_forbidden=True,
    routes=(ByHand(where=f"the zip behind {_DRIVE}", checksum="md5:f1c30808a707f9197c6c811ea52e5cbb"),),
    flaws="a few classes hold duplicates of each other's images; they are kept",
    unconfirmed=("file list",),
)

_OMNIBENCHMARK_1K = DataSet(
    name="omnibenchmark-1k",
    title="OmniBenchmark-1K (CaRE, 1,000 classes)",
    num_classes=1_000,
    folder="omnibenchmark1k",
    layout=_CLASS_FOLDERS,
    splits={"folders": Split(reader="folders")},
    page="huggingface.co/datasets/LMMM2025/OmniBenchmark-1K",
    terms="derived from OmniBenchmark (CC BY-NC-ND 4.0), shared by permission: hand nothing on",
    rehosting_forbidden=True,
    routes=(HubRoute(repo="LMMM2025/OmniBenchmark-1K", form="tree"),),
    unconfirmed=("revision", "counts", "licence tag", "file list"),
)

_CUB200 = DataSet(
    name="cub200",
    title="CUB-200-2011 (official split)",
    num_classes=200,
    folder="CUB_200_2011",
    layout="images.txt, image_class_labels.txt, train_test_split.txt and images/<001.Name>/<image>",
    splits={
        "official": Split(
            reader="index",
            train=5_994,
            test=5_794,
            test_sizes=(515, 575, 596, 586, 592, 566, 598, 586, 592, 588),
        ),
        "folders": Split(
            reader="folders",
            train=5_994,
            test=5_794,
            test_sizes=(515, 575, 596, 586, 592, 566, 598, 586, 592, 588),
        ),
    },
    page="data.caltech.edu/records/65de6-vp158",
    terms="non-commercial research (unconfirmed)",
    routes=(
        ByHand(
            where="CUB_200_2011.tgz of data.caltech.edu/records/65de6-vp158",
            checksum="md5:97eceeb196236b17998738112f37df78",
        ),
        HubRoute(
            repo="Donghyun99/CUB-200-2011",
            revision="0e344a8256fa95fe1e5c05325d407a94a961dbab",
            form="parquet",
        ),
    ),
    unconfirmed=("terms", "order of labels and column names of the hub copy (split 'folders')"),
)

_CUB200_LAMDA = DataSet(
    name="cub200-lamda",
    title="CUB-200-2011 (LAMDA's re-split)",
    num_classes=200,
    folder="cub",
    layout=_CLASS_FOLDERS,
    splits={
        "folders": Split(
            reader="folders",
            train=9_430,
            test=2_358,
            test_order=1993,
            test_sizes=(
                *(118, 129, 97, 110, 107, 111, 106, 141, 133, 136),
                *(115, 113, 107, 118, 126, 124, 134, 103, 132, 98),
            ),
        )
    },
    page="github.com/zhoudw-zdw/RevisitingCIL",
    terms="non-commercial research (unconfirmed)",
    routes=(ByHand(where=f"cub.zip behind {_DRIVE}", checksum="md5:85e342a2d5f941e740193602057df7a5"),),
    unconfirmed=("file list", "terms"),
)

_VTAB = DataSet(
    name="vtab",
    title="VTAB (LAMDA, 50 classes of 5 sources)",
    num_classes=50,
    folder="vtab",
    layout=_CLASS_FOLDERS,
    splits={
        "folders": Split(reader="folders", train=1_796, test=8_619, test_sizes=(1_000, 400, 985, 5_400, 834))
    },
    page="github.com/zhoudw-zdw/RevisitingCIL",
    terms="one per source (Resisc45, DTD, Pets, EuroSAT, Flowers; unconfirmed): hand nothing on",
    rehosting_forbidden=True,
    routes=(ByHand(where=f"the zip behind {_DRIVE} (drive id 1xUiwlnx4k0oDhYi26KL5KwrCAya-mvJ_)"),),
    flaws="not the 19 tasks of VTAB; 63 % of its test images are EuroSAT",
    unconfirmed=("checksum of the zip", "file list", "terms"),
)

_DOMAINNET = DataSet(
    name="domainnet",
    title="DomainNet (cleaned, 345 classes)",
    num_classes=345,
    folder="domainnet",
    layout="train/<class>/<image> and test/<class>/<image>; for lists <domain>/<class>/<image>, cleaned",
    splits={
        "folders": Split(reader="folders", train=409_832, test=176_743),
        "coda": Split(
            reader="lists",
            train_lists=_list("domainnet_train.yaml", f"{_CODA}/domainnet_train.yaml"),
            test_lists=_list("domainnet_test.yaml", f"{_CODA}/domainnet_test.yaml"),
        ),
    },
    page="DomainNet of the M3SDA challenge (cleaned version)",
    terms="fair use, non-commercial research",
    size="18 GB",
    routes=(
        HubRoute(
            repo="wltjr1007/DomainNet",
            revision="ee20570ae7a29c51571e55a9a17983f7625295d6",
            form="parquet",
            label=("label", "y"),
        ),
        ByHand(where="the six cleaned archives of the publisher's page, extracted side by side"),
    ),
    flaws="the uncleaned archives hold 9,435 images more, duplicates among them: their totals are refused",
    unconfirmed=(
        "whether CODA-Prompt's lists are the concatenated official ones: counts, labels and checksums",
        "column names of the hub copy (split 'folders')",
    ),
)

_DOMAINNET_200 = attrs.evolve(
    _DOMAINNET,
    name="domainnet-200",
    title="S-DomainNet (200 classes of one domain each)",
    num_classes=200,
    splits={
        "cprompt": Split(
            reader="lists",
            train=47_532,
            test=20_450,
            train_sha256="19df5473dfbb7d765dc85c63291a981ca72e8a9d56b54bfa1c38d45cc09ce33c",
            test_sha256="0e9551997ad6a4b0977b047f50cfb88e17db8a86fbf6020c91ae7ecf2dba182f",
            test_sizes=(3_226, 1_291, 1_898, 3_000, 3_000, 1_307, 3_279, 995, 1_465, 989),
            train_lists=_list(
                "s-domainnet_train.txt",
                f"{_CPROMPT}/domainnet/train.txt",
                "87671cd9a6309dc5e9ebfa8eab8c14abbc270d605c9430c7525ff8e9d7e7e74e",
            ),
            test_lists=_list(
                "s-domainnet_test.txt",
                f"{_CPROMPT}/domainnet/test.txt",
                "09a928122e59983f29805412443c28a09153599c8b7f6ca254fdd2c64f37b9dc",
            ),
        )
    },
    routes=(ByHand(where="the six cleaned archives of DomainNet's page, extracted side by side"),),
    flaws="every class is of one domain: natural order gives one domain a task, other orders mix them",
    unconfirmed=(),
)

_STANFORD_CARS = DataSet(
    name="stanford-cars",
    title="Stanford Cars",
    num_classes=196,
    folder="stanford-cars",
    layout=f"{_CLASS_FOLDERS}, or car_ims/<image> for the split 'cprompt'",
    splits={
        "folders": Split(reader="folders", train=8_144, test=8_041),
        "cprompt": Split(
            reader="lists",
            train=8_144,
            test=8_041,
            test_order=1993,
            train_lists=_list(
                "stanford-cars_train.txt",
                f"{_CPROMPT}/stanfordcars/train.txt",
                "0e87a9ca71c5edd3386d09c296e849affe6d19faf57769894edfc3b1ef40bf3a",
            ),
            test_lists=_list(
                "stanford-cars_test.txt",
                f"{_CPROMPT}/stanfordcars/test.txt",
                "7ef7f4cc0f5b40efb67e75adf9df874a6e19975788e1ce331415f4031f4cf195",
            ),
        ),
    },
    page="Stanford Cars (the publisher's host is gone)",
    terms="non-commercial research (unconfirmed)",
    size="below 6 GB",
    routes=(
        HubRoute(
            repo="tanganke/stanford_cars",
            revision="eecb78ea10909d57ec0ace8afed332d342c36b79",
            form="parquet",
        ),
        HubRoute(
            repo="Donghyun99/Stanford-Cars",
            revision="c9c43a068ed98f2bb655814a01eacbe2afc2e3f1",
            form="parquet",
        ),
    ),
    flaws="near-duplicate model years",
    unconfirmed=("terms", "column names of the hub copies", "file list of the split 'folders'"),
)

FIVE_DATASETS = DataSet(
    name="five-datasets",
    title="5-Datasets (SVHN, MNIST, CIFAR-10, NotMNIST, Fashion-MNIST)",
    num_classes=50,
    folder="",
    layout="torchvision's files, and notMNIST/Train/<A..J>/*.png, notMNIST/Test/<A..J>/*.png",
    splits={"official": Split(reader="arrays")},
    page="github.com/facebookresearch/Adversarial-Continual-Learning (NotMNIST); torchvision",
    terms="SVHN: non-commercial use; the others: none stated (unconfirmed)",
    size="about 0.6 GB",
    routes=(TorchvisionRoute(classes=("SVHN", "MNIST", "CIFAR10", "FashionMNIST")),),
    beside=(
        RemoteFile(
            name="notMNIST.zip",
            url="https://raw.githubusercontent.com/facebookresearch/Adversarial-Continual-Learning/HEAD/data/"
            "notMNIST.zip",
        ),
    ),
    flaws="some files of NotMNIST are no images; they are left out and counted",
    unconfirmed=("counts and checksum of NotMNIST", "terms"),
)

DATA_SETS = MappingProxyType(
    {
        data.name: data
        for data in (
            CIFAR100,
            _IMAGENET_R,
            _IMAGENET_A,
            _CUB200,
            _CUB200_LAMDA,
            _OMNIBENCHMARK,
            _OMNIBENCHMARK_1K,
            _VTAB,
            _DOMAINNET,
            _DOMAINNET_200,
            _STANFORD_CARS,
            FIVE_DATASETS,
        )
    }
)
"""All data sets by the name of their benchmark."""
