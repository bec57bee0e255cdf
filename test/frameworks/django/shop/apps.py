"""The app."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Its listeners are registered when it is ready, as django-pgpubsub's documentation has it."""

    name = "shop"

    def ready(self) -> None:
        import shop.listeners  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
