import pytest

from rocketbroker.broker.out.master_address import Master, MasterAddress

A = Master("10.0.0.1:10911", "10.0.0.1:10912")
B = Master("10.0.0.2:10911", "10.0.0.2:10912")


def made():
    """Return an address of a slave, and the list of masters that its listener gets."""
    address = MasterAddress(lambda: "10.0.0.9:10911")
    heard: list[Master] = []
    address.on_change(heard.append)
    return address, heard


def test_listeners_hear_of_another_master_once():
    address, heard = made()

    address.registered("ns1", A)
    address.registered("ns2", A)
    address.registered("ns1", A)
    assert (heard, address.master, address.answers) == ([A], A, True)

    address.registered("ns1", Master())
    assert address.master == A, "one name server still has it"
    address.registered("ns2", Master())
    assert (heard, address.master, address.answers) == ([A, Master()], Master(), False)


def test_the_followed_master_stays_while_a_name_server_has_it(caplog):
    address, heard = made()

    address.registered("ns1", A)
    address.registered("ns2", B)

    assert heard == [A]
    assert "the name servers have different masters for this slave: 10.0.0.1:10911 at ns1, 10.0.0.2:10911 at ns2" in (
        caplog.text
    )
    address.registered("ns1", B)
    assert heard == [A, B]


def test_a_master_whose_ha_address_moved_is_another_one():
    address, heard = made()
    moved = A._replace(ha_address="10.0.0.1:20912")

    address.registered("ns1", A)
    address.registered("ns1", moved)

    assert heard == [A, moved]


def test_the_last_name_server_keeps_its_answer_when_it_is_lost():
    address, heard = made()

    address.registered("ns1", A)
    address.lost("ns1")
    assert address.master == A

    address.registered("ns2", Master())
    address.lost("ns1")
    assert heard == [A, Master()]


def test_a_broker_is_never_its_own_master(caplog):
    address, heard = made()

    address.registered("ns1", Master("10.0.0.9:10911", "10.0.0.9:10912"))

    assert heard == []
    assert "another broker uses it; give each broker its own address" in caplog.text


def test_a_master_that_announces_itself_counts_until_a_name_server_names_one():
    address, heard = made()

    assert address.announce(A)
    address.registered("ns1", Master())
    assert (heard, address.master) == ([A], A), "it registers only afterwards"

    address.registered("ns1", B)
    assert (heard, address.master) == ([A, B], B)
    address.registered("ns1", Master())
    assert address.master == Master()


def test_another_master_than_a_name_server_names_is_not_followed_even_when_that_one_dies():
    address, heard = made()
    address.registered("ns1", A)

    assert not address.announce(B)
    address.lost("ns1")

    assert address.master == A
    assert address.announce(A)
    assert heard == [A]


@pytest.mark.parametrize("own", ["", "10.0.0.9:10911"])
def test_a_master_without_an_address_of_its_own_is_not_followed(own: str):
    address, heard = made()
    assert not address.announce(Master(own, "10.0.0.9:10912"))
    assert heard == []


def test_a_master_that_no_name_server_has_is_forgotten():
    address, heard = made()
    address.registered("ns1", A)

    address.forget()

    assert (heard, address.master, address.answers) == ([A, Master()], Master(), False)
