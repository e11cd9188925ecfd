// SPDX-License-Identifier: Apache-2.0
/// libbellows_object: elastic objects in C++, which a pool's members serve and callers call,
/// together with those in Python.
///
///     bellows::pool::Server server;                            // in a member
///     server.add("add", [](int a, int b) { return a + b; }, bellows::pool::Runs::again);
///     auto served = server.serve();
///
///     auto stub = bellows::pool::Stub::connect("index");       // in a caller
///     auto sum = stub->call<int>("add", 1, 2);
///     if (sum) use(*sum); else complain(sum.failure().text);
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

namespace bellows::pool {

/// What isn't text.
struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};

/// A type of MessagePack's that this library hands on as it is. 1: an array of Python's numpy.
struct Extension {
  std::int8_t type = 0;
  std::string data;
  bool operator==(const Extension&) const = default;
};

/// Anything that a call or an answer may hold. Numbers that fit are std::int64_t.
struct Value {
  using List = std::vector<Value>;
  struct Entry;
  using Map = std::vector<Entry>;
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Bytes, List,
               Map, Extension>
      held;
  bool operator==(const Value& other) const;
};
/// Not a std::pair: clang would need it complete while Value is not.
struct Value::Entry {
  Value first;
  Value second;
  bool operator==(const Entry& other) const = default;
};
inline bool Value::operator==(const Value& other) const { return held == other.held; }

/// How a call ended.
enum class CallOutcome {
  raised,        ///< the method threw; `type` and `traceback` are those of the exception
  refused,       ///< the member has no such method, or it takes other arguments: it has not run
  unavailable,   ///< no member took it in time: it has not run
  may_have_run,  ///< the member was lost before it answered, and it is not known whether it ran
  timed_out,     ///< no answer in time: it may have run
  mistyped,      ///< it has run, and its answer is of another type than was asked for
};

struct Failure {
  CallOutcome outcome;
  std::string text;  ///< for a person: what, where
  std::string type;
  std::string traceback;
};

/// A result or a Failure.
template <typename T>
class Answer {
 public:
  using Held = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  Answer(Held value) : held_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Answer(Failure failure) : held_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)
  explicit operator bool() const { return held_.index() == 0; }
  Held& operator*() { return std::get<0>(held_); }
  const Held& operator*() const { return std::get<0>(held_); }
  Held* operator->() { return &std::get<0>(held_); }
  const Held* operator->() const { return &std::get<0>(held_); }
  const Failure& failure() const { return std::get<1>(held_); }

 private:
  std::variant<Held, Failure> held_;
};

/// To and from Value. A program may add its own types by specializing it.
template <typename T>
struct Convert;

template <typename T>
Value to_value(const T& from) {
  return {Convert<std::decay_t<const T&>>::to(from)};
}
/// false: the value is of another type, or doesn't fit.
template <typename T>
bool from_value(const Value& from, T* into) {
  return Convert<T>::from(from, into);
}

/// What a method throws so that callers see this type.
class Raised : public std::runtime_error {
 public:
  Raised(std::string type, const std::string& text)
      : std::runtime_error(text), type_(std::move(type)) {}
  const std::string& type() const { return type_; }

 private:
  std::string type_;
};

class Caller;
class CalledStream;

/// The items of a method that streams, as they come. Ends the call when it goes.
template <typename T>
class Stream {
 public:
  explicit Stream(std::shared_ptr<CalledStream> stream) : stream_(std::move(stream)) {}
  /// false: the stream is over; failure() says whether it was complete.
  bool next(T* item);
  /// nullptr: nothing has failed.
  const Failure* failure() const;

 private:
  std::shared_ptr<CalledStream> stream_;
};

/// Calls the members of a pool: each time the one with fewer of this stub's calls. A call goes to
/// another member if it has certainly not run, or if its method may run again. Any number of
/// threads may use one stub. Copies share their connections.
class Stub {
 public:
  static constexpr std::chrono::milliseconds kTimeout{30'000};

  /// By the pool's name, or by its directory if there is a slash in it. unavailable: its key can't
  /// be read.
  static Answer<Stub> connect(const std::string& pool,
                              std::chrono::milliseconds timeout = kTimeout);

  /// The same stub with another time for each call.
  Stub within(std::chrono::milliseconds timeout) const { return Stub(caller_, timeout); }

  template <typename Result, typename... Args>
  Answer<Result> call(std::string_view method, const Args&... args) const {
    return converted<Result>(call_values(method, {to_value(args)...}));
  }
  template <typename Item, typename... Args>
  Stream<Item> stream(std::string_view method, const Args&... args) const {
    return Stream<Item>(stream_values(method, {to_value(args)...}));
  }
  Answer<Value> call_values(std::string_view method, const Value::List& args) const;
  std::shared_ptr<CalledStream> stream_values(std::string_view method,
                                              const Value::List& args) const;

 private:
  Stub(std::shared_ptr<Caller> caller, std::chrono::milliseconds timeout)
      : caller_(std::move(caller)), timeout_(timeout) {}
  template <typename Result>
  static Answer<Result> converted(Answer<Value> answer);

  std::shared_ptr<Caller> caller_;
  std::chrono::milliseconds timeout_;
};

/// Whether a method may run twice when the member that ran it was lost.
enum class Runs { once, again };

/// Where a method that streams sends its items.
template <typename Item>
class Sink {
 public:
  Sink() = default;
  Sink(std::function<bool(const Item&)> send, std::function<bool()> wanted)
      : send_(std::move(send)), wanted_(std::move(wanted)) {}

  /// false: the caller has gone.
  bool operator()(const Item& item) const { return send_(item); }
  /// Whether the caller is there and its time is not over, for a method that has nothing to send.
  bool is_wanted() const { return wanted_(); }

 private:
  std::function<bool(const Item&)> send_;
  std::function<bool()> wanted_;
};

struct ServerOptions {
  std::uint16_t port = 0;  ///< 0: one that is free
  unsigned limit = 64;     ///< calls at once; what is above is refused, and asks another member
};

/// Serves methods in a member, each call in a thread of its own. What a method throws arrives at
/// its caller: Raised with its type, std::invalid_argument as ValueError, std::out_of_range as
/// IndexError, others as RuntimeError.
class Server {
 public:
  explicit Server(ServerOptions options = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Before serve(). The function's types are those that are sent.
  template <typename Function>
  void add(std::string name, Function function, Runs runs = Runs::once) {
    add_typed(std::move(name), std::function(std::move(function)), runs);
  }
  /// A method whose first argument is a Sink<Item>.
  template <typename Function>
  void add_stream(std::string name, Function function, Runs runs = Runs::once) {
    add_typed_stream(std::move(name), std::function(std::move(function)), runs);
  }
  /// Called when the member must go, in a thread of its own, with the seconds that are left.
  void on_drain(std::function<void(unsigned)> told);
  /// Asked each second for the members that the pool should have more, or fewer.
  void change_pool_size(std::function<int()> asked);

  /// Serves until the member is told to end, SIGTERM comes or drain() is called, and the calls are
  /// done. The pool's directory is $BELLOWS_POOL. Only one at a time in a process. unavailable: its
  /// key can't be read, or the port is taken.
  Answer<void> serve();
  /// As if the member was told; from any thread.
  void drain(unsigned seconds);

 private:
  struct State;
  using Work = std::function<Answer<Value>(const Value::List&, const Sink<Value>&)>;
  void add_work(std::string name, Work work, Runs runs, bool streams);
  template <typename Result, typename... Args>
  void add_typed(std::string name, std::function<Result(Args...)> function, Runs runs);
  template <typename ToItem, typename... Args>
  void add_typed_stream(std::string name, std::function<void(ToItem, Args...)> function, Runs runs);

  std::unique_ptr<State> state_;
};

// What follows are the templates.

bool next_value(CalledStream& stream, Value* item);
const Failure* failure_of(const CalledStream& stream);
void mistyped(CalledStream& stream);

template <typename T>
bool Stream<T>::next(T* item) {
  Value value;
  if (!next_value(*stream_, &value)) return false;
  if (from_value(value, item)) return true;
  mistyped(*stream_);
  return false;
}

template <typename T>
const Failure* Stream<T>::failure() const {
  return failure_of(*stream_);
}

template <typename Result>
Answer<Result> Stub::converted(Answer<Value> answer) {
  if (!answer) return answer.failure();
  typename Answer<Result>::Held held{};
  if constexpr (!std::is_void_v<Result>)
    if (!from_value(*answer, &held))
      return Failure{CallOutcome::mistyped, "the answer is of another type", {}, {}};
  return held;
}

namespace detail {

/// Whether as many arguments came as a method has, of its types.
template <typename Tuple, std::size_t... kAt>
bool take(const Value::List& from, [[maybe_unused]] Tuple* into, std::index_sequence<kAt...>) {
  return from.size() == sizeof...(kAt) && (from_value(from[kAt], &std::get<kAt>(*into)) && ...);
}

template <typename T>
struct ItemOf;
template <typename Item>
struct ItemOf<Sink<Item>> {
  using type = Item;
};

}  // namespace detail

template <typename Result, typename... Args>
void Server::add_typed(std::string name, std::function<Result(Args...)> function, Runs runs) {
  add_work(
      std::move(name),
      [function = std::move(function)](const Value::List& from,
                                       const Sink<Value>&) -> Answer<Value> {
        std::tuple<std::decay_t<Args>...> args;
        if (!detail::take(from, &args, std::index_sequence_for<Args...>()))
          return Failure{CallOutcome::raised, "the method takes other arguments", "TypeError", {}};
        if constexpr (std::is_void_v<Result>) {
          std::apply(function, std::move(args));
          return Value{};
        } else {
          return to_value(std::apply(function, std::move(args)));
        }
      },
      runs, false);
}

template <typename ToItem, typename... Args>
void Server::add_typed_stream(std::string name, std::function<void(ToItem, Args...)> function,
                              Runs runs) {
  using Item = typename detail::ItemOf<std::decay_t<ToItem>>::type;
  add_work(
      std::move(name),
      [function = std::move(function)](const Value::List& from,
                                       const Sink<Value>& sink) -> Answer<Value> {
        std::tuple<std::decay_t<Args>...> args;
        if (!detail::take(from, &args, std::index_sequence_for<Args...>()))
          return Failure{CallOutcome::raised, "the method takes other arguments", "TypeError", {}};
        const Sink<Item> typed([&sink](const Item& item) { return sink(to_value(item)); },
                               [&sink] { return sink.is_wanted(); });
        std::apply([&](auto&&... all) { function(typed, std::move(all)...); }, std::move(args));
        return Value{};
      },
      runs, true);
}

template <>
struct Convert<Value> {
  static decltype(Value::held) to(const Value& from) { return from.held; }
  static bool from(const Value& from, Value* into) {
    *into = from;
    return true;
  }
};

/// Those that a Value holds as they are.
template <typename T>
requires std::same_as<T, bool> || std::same_as<T, std::string> || std::same_as<T, Bytes> ||
    std::same_as<T, Extension> || std::same_as<T, Value::List> || std::same_as<T, Value::Map>
struct Convert<T> {
  static T to(const T& from) { return from; }
  static bool from(const Value& from, T* into) {
    const T* const held = std::get_if<T>(&from.held);
    if (held) *into = *held;
    return held != nullptr;
  }
};

template <std::integral T>
requires(!std::same_as<T, bool>) struct Convert<T> {
  static decltype(Value::held) to(T from) {
    if (std::in_range<std::int64_t>(from)) return static_cast<std::int64_t>(from);
    return static_cast<std::uint64_t>(from);
  }
  static bool from(const Value& from, T* into) {
    if (const auto* const held = std::get_if<std::int64_t>(&from.held)) {
      *into = static_cast<T>(*held);
      return std::in_range<T>(*held);
    }
    const auto* const held = std::get_if<std::uint64_t>(&from.held);
    if (held) *into = static_cast<T>(*held);
    return held && std::in_range<T>(*held);
  }
};

template <std::floating_point T>
struct Convert<T> {
  static double to(T from) { return static_cast<double>(from); }
  static bool from(const Value& from, T* into) {
    // Python sends 1 for 1.0 where the program has an int.
    if (const auto* const whole = std::get_if<std::int64_t>(&from.held)) {
      *into = static_cast<T>(*whole);
      return true;
    }
    const auto* const held = std::get_if<double>(&from.held);
    if (held) *into = static_cast<T>(*held);
    return held != nullptr;
  }
};

template <>
struct Convert<const char*> {
  static std::string to(const char* from) { return from; }
};

template <>
struct Convert<std::string_view> {
  static std::string to(std::string_view from) { return std::string(from); }
};

/// Python's None is one that holds nothing.
template <typename T>
struct Convert<std::optional<T>> {
  static decltype(Value::held) to(const std::optional<T>& from) {
    return from ? to_value(*from).held : decltype(Value::held)();
  }
  static bool from(const Value& from, std::optional<T>* into) {
    into->reset();
    return std::holds_alternative<std::monostate>(from.held) || from_value(from, &into->emplace());
  }
};

template <typename T>
requires(!std::same_as<T, Value>) struct Convert<std::vector<T>> {
  static Value::List to(const std::vector<T>& from) {
    Value::List list;
    list.reserve(from.size());
    for (const auto& one : from) list.push_back(to_value<T>(one));
    return list;
  }
  static bool from(const Value& from, std::vector<T>* into) {
    const auto* const list = std::get_if<Value::List>(&from.held);
    into->clear();
    for (const Value& value : list ? *list : Value::List()) {
      T one{};
      if (!from_value(value, &one)) return false;
      into->push_back(std::move(one));
    }
    return list != nullptr;
  }
};

template <typename T>
struct Convert<std::map<std::string, T>> {
  static Value::Map to(const std::map<std::string, T>& from) {
    Value::Map map;
    for (const auto& [key, one] : from) map.push_back({Value{key}, to_value(one)});
    return map;
  }
  static bool from(const Value& from, std::map<std::string, T>* into) {
    const auto* const map = std::get_if<Value::Map>(&from.held);
    into->clear();
    for (const auto& [key, value] : map ? *map : Value::Map()) {
      std::string name;
      if (!from_value(key, &name) || !from_value(value, &(*into)[name])) return false;
    }
    return map != nullptr;
  }
};

}  // namespace bellows::pool

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
