"""What lies where below a store's root.

RocketMQ's folders and tables keep its names; all that only rmqha knows lies in a folder of its
own, so that a stock broker can open the store.  Nodes, offline commands and readers take the
names from here: one that is written twice is one day written differently.

Source: docs/protocol/store.rst, Files; docs/architecture.rst, Files of our own.
"""

from __future__ import annotations

# --- RocketMQ's -----------------------------------------------------------------

LOCK = "lock"
"""Locked by the process that has the store open."""
CHECKPOINT = "checkpoint"
"""Up to which store times all is flushed."""
ABORT = "abort"
"""There while a node runs, so still there after a crash."""

EPOCH_FILE_CHECKPOINT = "epochFileCheckpoint"
"""The epoch labels of a log in controller mode."""

BROKER_IDENTITY = "brokerIdentity"
"""Which member of its set a store belongs to, in controller mode."""

COMMITLOG = "commitlog"
"""The folder of the log's files."""
CONSUMEQUEUE = "consumequeue"
"""The folder of consume queues: below it one a topic, and in that one a queue."""
INDEX = "index"
"""The folder of index files."""

UNIT_SIZE = 20
"""Bytes of one unit of a consume queue; its files are whole units."""

BLANK_SIZE = 0x7FFFFFFF
"""The record's size in a unit that fills a gap in a queue."""

CONFIG = "config"
"""The folder of a broker's tables."""

TOPICS = "topics.json"
SUBSCRIPTION_GROUPS = "subscriptionGroup.json"
CONSUMER_OFFSETS = "consumerOffset.json"
DELAY_OFFSETS = "delayOffset.json"
REQUEST_MODES = "messageRequestMode.json"
POP_ORDER = "consumerOrderInfo.json"
"""Its tables; they lie in L{CONFIG}."""

TIMER_CHECKPOINT = "timercheck"
"""How far the timer messages of a 5.x broker are, in L{CONFIG} too."""

# --- our own --------------------------------------------------------------------

OWN_FOLDER = "rmqha"
"""The folder below a store's root for what only rmqha knows; all names below are of files and
folders in it."""

POINT = "published.json"
"""How far the log may be read, and where it was cut back (L{rmqha.wire.log.published})."""

LOG_PLACE = "commitlog.json"
"""Where the log lies, if not in L{COMMITLOG} below the root."""

STORE_PLACE_SUFFIX = ".rmqha.json"
"""Of the file beside such a log that says whose it is; it begins with the log folder's name."""

RECORD_CHECKSUMS = "checksums"
"""A folder with a file for each of the log's, of the same name: a checksum of each whole record."""

SPLITS = "splits"
"""Where records begin, so that a log can be read by many at once."""

SPLIT_FINGERPRINTS = "splits.json"
"""What proves L{SPLITS} where no node keeps them: a fingerprint for each file of the log."""

TOPIC_INDEX = "topics"
"""A folder with a file for each of the log's, of the same name: which topics its records have."""

READERS = "readers"
"""A folder with a file for each reader that has a name, C{<name>.json}."""

METADATA = "metadata.json"
"""What a slave knows of its master's tables, and owes it."""

TABLE_CHECKSUMS = "tables.json"
"""Checksums of the tables in L{CONFIG}, and of L{METADATA}."""

OFFSET_JOURNAL = "offsets"
"""A folder with what happened to consumers' offsets since their table was written."""

JOURNAL_SUFFIX = ".journal"
"""Of the files in it, which are numbered."""

EPOCH = "epoch.json"
"""Which life of the log this is."""

MASTER_EPOCHS = "epochs.json"
"""The master epoch of the log, and where each epoch began."""

HELD = "held.json"
"""On a member of a set, up to where its log was counted on."""

GROWTH = "growth.json"
"""On a master of a set, which sets its own was to become."""

REGISTERED = "registered.json"
"""On a member of a set that etcd coordinates, as which store it is registered there."""

BEFORE_RESET = "before-reset-"
"""How folders are named, with a number behind, in which C{rmqha controller reset} keeps what the
store knew of its set."""

PROMOTION = "promotion.json"
"""On a slave that a configuration makes a master next, what its promotion is to be."""

FOLLOWED = "followed.json"
"""On a slave, the master that its log is a copy of."""

SLOTS = "slots.json"
"""What replicas that are away will need of the log."""

EVENTS = "events.jsonl"
"""What happened to a node lately."""

DISPATCHED = "dispatched.json"
"""How far queues and index surely go."""

DELETED_TOPICS = "deleted.json"
"""Topics that were deleted, whose records are still in the log."""

TRUNCATION = "truncate.json"
"""A cut of the log that has begun and is not finished."""

ARRIVED = "arrived.json"
"""Since when the log is where it is."""

RESERVE = "reserve"
"""Room that is kept for what has to be written on a full disk."""

SCRUB = "scrub.json"
"""How far the log was read again, to find damage, and what was found."""

LOST_TAIL = "lost-tail.json"
"""There while the log lacks bytes at its end that were on the disk once."""

REPLICAS = "replicas.json"
"""Where a master's replicas are, for the start after a crash."""

COMPARED = "compared.json"
"""How far a slave has compared its log with its master's while it was idle."""

BOOTSTRAPPING = "bootstrapping.json"
"""There while a slave copies a log from nothing."""

QUARANTINE = "quarantine"
"""A folder with the bytes that were cut off."""

ASIDE = "aside"
"""A folder with queue and index files that were found unusable."""

REPAIR = "repair.json"
"""Ranges of the log that are being replaced by a replica's bytes."""

COPIED_DAMAGE = "copied-damage.json"
"""Records that were damaged on the master already when they were copied from it."""

FETCHED = "repair"
"""A folder with those bytes, as long as they are not in the log."""

REBUILD = "rebuild"
"""A folder in which queues and index are built anew."""

ARCHIVE = "archive.json"
"""Whose log an archive is, and how far it goes."""

# --- files that are being replaced ------------------------------------------------

BACKUP_SUFFIX = ".bak"
"""Of a table's generation before the present one."""

NEW_SUFFIX = ".tmp"
"""Of what is written first, to be renamed when it is whole."""

PARTIAL_SUFFIX = ".partial"
"""Of a log file that C{rmqha receive} or C{rmqha restore} has not finished."""
