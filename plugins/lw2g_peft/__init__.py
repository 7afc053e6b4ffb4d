"""Sets of low-rank updates as adapter folders of peft."""
