"""Prices of card-hours, from options and files."""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from pathlib import Path

from hbox_common.errors import InvalidRequest, NotFound


def read_prices(given: Iterable[str], file: Path | None) -> dict[str, Decimal]:
    """Prices of a card-hour by model, from `MODEL=PRICE` and from a YAML or JSON file of the same; the former win. Raises InvalidRequest, NotFound."""
    prices: dict[str, Decimal] = {}
    if file is not None:
        from hbox_common.yamltext import settings_of  # noqa: PLC0415  for those who have such a file

        if not file.exists():
            raise NotFound(f"--prices {file}: there is no such file")
        try:
            raw = settings_of(file)
        except InvalidRequest as e:
            raise InvalidRequest(f"--prices {e.message}", hint=e.hint) from e
        if not isinstance(raw, dict):
            raise InvalidRequest(
                f"--prices {file}: it holds no prices", hint="write a line for each model, like NVIDIA-A100: 2.5"
            )
        prices = {str(model): _price(f"--prices {file}: {model}", str(price)) for model, price in raw.items()}
    for item in given:
        model, _, price = item.rpartition("=")
        if not model:
            raise InvalidRequest(
                f"--price {item}: write it as MODEL=PRICE", hint="for example NVIDIA-A100=2.5, or *=1 for all others"
            )
        prices[model] = _price(f"--price {item}", price)
    return prices


def _price(where: str, text: str) -> Decimal:
    try:
        price = Decimal(text)
    except InvalidOperation as e:
        raise InvalidRequest(f"{where}: {text!r} is no number") from e
    if not price.is_finite() or price < 0:
        raise InvalidRequest(f"{where}: {text} is no price")
    return price
