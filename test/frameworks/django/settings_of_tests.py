"""The settings with which django-pgpubsub's own tests run."""

from settings import *  # noqa: F401,F403  pylint: disable=wildcard-import,unused-wildcard-import

INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "pgtrigger", "pgpubsub", "pgpubsub.tests"]
PGTRIGGER_MIGRATIONS = True
