"""Models of your own photographs that go on learning: start, learn, unlearn, test, teach."""
