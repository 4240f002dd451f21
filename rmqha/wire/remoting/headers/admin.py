"""Topics, groups, statistics and rights: what administrators ask a broker.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header


class TopicRequest(Header):
    """Codes 202, 215, 217 and 300, and those of a name server that name a topic only."""

    topic: str


class GroupRequest(Header):
    """Codes 343 and 352: about one consumer group."""

    group: str


class TopicGroupRequest(Header):
    """Codes 221, 303 and 345."""

    topic: str
    group: str


class CreateTopicRequest(Header):
    """Code 17.

    @ivar perm: Bits: 4 read, 2 write, 1 inherit.
    @ivar topic_filter_type: C{SINGLE_TAG} or C{MULTI_TAG}.
    @ivar attributes: C{+name=value} with commas between; 5.x.
    """

    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class TopicConfigRequest(Header):
    """Code 351: about one topic."""

    topic: str
    lo: bool | None = None


class DeleteGroupRequest(Header):
    """Code 207.

    @ivar remove_offset: Whether its offsets go too, in 4.9.
    @ivar clean_offset: The same in 5.x.
    """

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None

    @property
    def with_offsets(self) -> bool:
        """Whether the group's offsets go too; 4.x and 5.x say it in different fields."""
        return bool(self.remove_offset or self.clean_offset)


class ConsumeStatsRequest(Header):
    """Code 208.

    @ivar topic: One topic; absent for all of the group.
    @ivar topic_list: Topics with semicolons between; 5.x.
    """

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class BrokerStatsRequest(Header):
    """Code 315: one statistic, by name and key."""

    stats_name: str
    stats_key: str


class AllConsumeStatsRequest(Header):
    """Code 317.

    @ivar is_order: Whether only order topics are meant.
    """

    is_order: bool = False


class VersionAnswer(Header):
    """Answers code 26.

    @ivar version: A data version, as JSON.
    """

    version: str


class AclConfigRequest(Header):
    """Code 50; lists have commas between."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class AccessKeyRequest(Header):
    """Code 51: delete an access key."""

    access_key: str


class GlobalWhiteAddressesRequest(Header):
    """Code 53: set the addresses that need no access key."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class AclVersionAnswer(Header):
    """Answers code 52.

    @ivar version: A data version, as JSON.
    @ivar all_acl_file_version: JSON of data versions by path.
    """

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str
