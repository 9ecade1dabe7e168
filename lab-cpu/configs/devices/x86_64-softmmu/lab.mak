# SPDX-License-Identifier: GPL-2.0-or-later
# What scripts/lab has in its machine, and no more.
CONFIG_Q35=y
CONFIG_PCI_DEVICES=n
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_9P=y
CONFIG_VIRTIO_SERIAL=y
