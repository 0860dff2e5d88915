from rocketbroker.broker.timer.timer_delivery import Rates


def test_rates_are_of_the_last_interval():
    rates = Rates()
    rates.measure(10.0, 100, 0)
    assert (rates.taken_in, rates.delivered) == (0.0, 0.0)
    rates.measure(12.0, 300, 50)
    assert (rates.taken_in, rates.delivered) == (100.0, 25.0)
