"""The shared shapes: LW-214, LW-219."""

from nodus_api.metav1.objects import ListMeta, ObjectMeta, OwnerReference, ShardInfo


def test_unset_is_left_out_and_a_set_zero_is_not() -> None:  # LW-219
    assert ListMeta().to_wire() == {}
    assert ListMeta(remaining_item_count=0, continue_="").to_wire() == {
        "continue": "",
        "remainingItemCount": 0,
    }
    assert ListMeta(shard_info=ShardInfo(selector="s")).to_wire() == {
        "shardInfo": {"selector": "s"}
    }
    reference = OwnerReference(
        api_version="nodus.dev/v1", kind="Job", name="a", uid="u", block_owner_deletion=False
    )
    assert reference.to_wire()["blockOwnerDeletion"] is False
    assert "controller" not in reference.to_wire()


def test_resource_version_is_first_in_metadata() -> None:  # storage.md section 4
    metadata = ObjectMeta(name="a", namespace="p").to_wire()
    assert list(metadata) == ["resourceVersion", "name", "namespace"]
    assert metadata["resourceVersion"] == ""
