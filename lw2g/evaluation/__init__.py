"""Answers for test images of all seen tasks, and the numbers made of them."""
