"""The models."""

from django.db import models


class Order(models.Model):
    """Its text is sent when it is inserted."""

    text = models.TextField()
