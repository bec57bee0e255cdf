"""A project with one app."""

import os

SECRET_KEY = "of a test"  # nothing is signed with it
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "pgtrigger", "pgpubsub", "shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PGTRIGGER_MIGRATIONS = False  # main.py installs them
USE_TZ = True
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": os.environ.get("PGDATABASE"), "USER": os.environ.get("PGUSER"),
    "HOST": os.environ.get("PGHOST"), "PORT": os.environ.get("PGPORT"), "PASSWORD": os.environ.get("PGPASSWORD"),
}}
