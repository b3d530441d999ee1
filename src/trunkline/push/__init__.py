"""Receiving push notifications: `Receiver` checks and reads them, `Notification` is what one says."""

from trunkline.push.notification import Notification
from trunkline.push.receiver import Receiver

__all__ = ["Notification", "Receiver"]
