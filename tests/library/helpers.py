"""A user's own module, which tasks take from."""


def double(y):
    return y * 2
