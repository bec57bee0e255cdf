"""The app."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Registers the listeners in ready(), as django-pgpubsub's documentation describes."""

    name = "shop"

    def ready(self) -> None:
        import shop.listeners  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
