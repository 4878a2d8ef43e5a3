"""The web application of `shop`: routes, validation, pages. `q` and `page` in an item's url lead back to its results.

GET  /                            search box
GET  /search?q=&page=             results, four per page
GET  /item/N?q=&page=             a product: price, options
GET  /item/N/details?q=&page=     its attributes
POST /item/N/buy                  place the order (once), then see /order
GET  /order                       the order
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentq.envs.shop.tasks import Purchase
from agentq.envs.shop.world import PAGE_SIZE, Product, product, products, search
from agentq.envs.site import Request, Response, SiteSession, redirect, renderer

_render = renderer(Path(__file__).parent / "templates")


def new_session() -> SiteSession:
    """A visitor who has bought nothing yet."""
    return {"order": None}


class ShopSite:
    """See `agentq.envs.site.Site`."""

    def handle(self, request: Request, session: SiteSession) -> Response:
        """Answer one request."""
        match request.path.strip("/").split("/"):
            case [""]:
                return _page("home.html", session, {"query": ""})
            case ["search"]:
                return _results(request.params, session)
            case ["order"] if session["order"] is not None:
                order: Purchase = session["order"]
                return _page("order.html", session, {"order": order, "item": products()[order.product]})
            case ["item", number, *rest]:
                item = product(number)
                return _missing(session) if item is None else _item(item, rest, request, session)
            case _:
                return _missing(session)


def _page(template: str, session: SiteSession, values: Mapping[str, object], status: int = 200) -> Response:
    return Response(_render(template, ordered=session["order"] is not None, **values), status)


def _missing(session: SiteSession) -> Response:
    return _page("error.html", session, {"heading": "Page not found", "problem": "There is no such page"}, 404)


def _bad(session: SiteSession, problem: str) -> Response:
    return _page("error.html", session, {"heading": "Bad request", "problem": problem}, 400)


def _results(params: Mapping[str, str], session: SiteSession) -> Response:
    query, number = " ".join(params.get("q", "").split()), params.get("page", "1")
    if not query:
        return _page("home.html", session, {"query": "", "problem": "Search is required"}, 422)
    found = search(query)
    last = max(1, -(-len(found) // PAGE_SIZE))
    if number not in (known := [str(i) for i in range(1, last + 1)]):
        return _bad(session, f"There are {last} pages")
    page = known.index(number) + 1
    shown = found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    return _page("results.html", session, {"query": query, "shown": shown, "page": page, "last": last})


def _item(item: Product, rest: list[str], request: Request, session: SiteSession) -> Response:
    came_from = {key: request.params[key] for key in ("q", "page") if key in request.params}
    match rest:
        case []:
            return _offer(item, came_from, {}, (), session)
        case ["details"]:
            return _page("details.html", session, {"item": item, "came_from": came_from})
        case ["buy"] if request.method == "POST":
            return _buy(item, came_from, request.params, session)
        case _:
            return _missing(session)


def _offer(
    item: Product,
    came_from: Mapping[str, str],
    given: Mapping[str, str],
    problems: tuple[str, ...],
    session: SiteSession,
) -> Response:
    """The product's page; it keeps the options chosen so far."""
    values = {"item": item, "came_from": came_from, "given": given, "problems": problems}
    return _page("item.html", session, values, 422 if problems else 200)


def _buy(item: Product, came_from: Mapping[str, str], params: Mapping[str, str], session: SiteSession) -> Response:
    if session["order"] is not None:
        return _bad(session, "Your order is placed")
    color, size = params.get("color", ""), params.get("size", "")
    problems = [] if color in item.colors else ["Color is required"]
    if item.sizes and size not in item.sizes:
        problems.append("Size is required")
    if problems:
        return _offer(item, came_from, params, tuple(problems), session)
    session["order"] = Purchase(item.number, color, size if item.sizes else "")
    return redirect("/order")
