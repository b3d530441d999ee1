"""Receiving push notifications: `Receiver` checks and reads them, `Notification` is what one says."""

from trunkline.webhook.notification import Notification
from trunkline.webhook.receiver import Receiver

__all__ = ["Notification", "Receiver"]
