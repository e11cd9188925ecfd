// SPDX-License-Identifier: Apache-2.0
/// What orders.py is, in C++: routes orders to one of several books by their symbol, each once.
/// Members of both kinds can be in one pool, since their fields have the same names and the same
/// form.

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "examples/pool/fields.h"
#include "pool/include/bellows_object.h"

namespace {

using bellows::pool::Runs;
using bellows::pool::Value;

/// Its id, symbol and side, how much, and for how much.
using Order = std::tuple<std::string, std::string, std::string, std::int64_t, double>;
using Orders = std::vector<Order>;

class Router {
 public:
  explicit Router(unsigned books) : count_(books) {}

  /// Puts the order into a book, and returns the book's number. ValueError: it is no order, or
  /// another one has this id.
  unsigned place(const Order& order) {
    const auto& [id, symbol, side, quantity, price] = order;
    if ((side != "buy" && side != "sell") || quantity <= 0 || !(price > 0))
      throw std::invalid_argument("order " + id + ": buy or sell more than 0 for more than 0");
    if (!orders_.compare_and_set(id, std::optional<Order>(), order) &&
        orders_.get<Order>(id) != order)
      throw std::invalid_argument("order " + id + ": another order has this id");
    // A member that was lost here has left the id without its place, and the next call gives it.
    const unsigned book = book_of(symbol);
    books_.update<Orders>(std::to_string(book), [&](std::optional<Orders> held) {
      Orders all = std::move(held).value_or(Orders());
      const auto is_this = [&id](const Order& one) { return std::get<0>(one) == id; };
      if (std::none_of(all.begin(), all.end(), is_this)) all.push_back(order);
      return all;
    });
    return book;
  }
  /// Its orders, the oldest first.
  Orders book(unsigned number) {
    return books_.get<Orders>(std::to_string(number)).value_or(Orders());
  }

 private:
  unsigned book_of(const std::string& symbol) const {
    const auto* const data = reinterpret_cast<const unsigned char*>(symbol.data());
    return static_cast<unsigned>(crc32_z(0, data, symbol.size()) % count_);
  }

  const unsigned count_;
  example::Fields orders_{"example-orders"};
  example::Fields books_{"example-books"};
};

}  // namespace

/// How an order is sent: as the list that it is in Python.
template <>
struct bellows::pool::Convert<Order> {
  static Value::List to(const Order& from) {
    const auto& [id, symbol, side, quantity, price] = from;
    return {to_value(id), to_value(symbol), to_value(side), to_value(quantity), to_value(price)};
  }
};

int main() {
  const char* const books = std::getenv("BOOKS");
  Router router(books ? static_cast<unsigned>(std::max(1, std::atoi(books))) : 4);
  bellows::pool::Server server;
  server.add(
      "place",
      [&router](const std::string& id, const std::string& symbol, const std::string& side,
                std::int64_t quantity, double price) {
        return router.place({id, symbol, side, quantity, price});
      },
      Runs::again);
  server.add(
      "book", [&router](unsigned number) { return router.book(number); }, Runs::again);
  const auto served = server.serve();
  if (served) return 0;
  std::cerr << "orders: " << served.failure().text << "\n";
  return 1;
}
