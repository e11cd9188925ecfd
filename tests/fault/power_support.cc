// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/power_support.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace bellows::fault_test {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPiece = 4096;

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void put_bytes(std::string* data, std::uint64_t at, std::string_view bytes) {
  if (bytes.empty()) return;
  if (data->size() < at + bytes.size()) data->resize(at + bytes.size());
  std::copy(bytes.begin(), bytes.end(), data->begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

std::string Change::text(const std::string& root) const {
  constexpr const char* kWords[] = {"create", "write",    "resize", "sync", "mkdir",
                                    "rename", "exchange", "remove", "link"};
  std::string out = fmt::format("{} {}", kWords[static_cast<int>(kind)],
                                path.size() > root.size() ? path.substr(root.size() + 1) : ".");
  if (kind == Kind::rename || kind == Kind::exchange) out += " -> " + to.substr(root.size() + 1);
  if (kind == Kind::write) out += fmt::format(" {}+{}", at, data.size());
  return out;
}

Disk::Disk(const std::string& root) : root_(root) {
  load(root);
  durable_ = live_;
}

int Disk::load(const std::string& path) {
  const int number = static_cast<int>(live_.size());
  live_.emplace_back();
  const auto status = fs::symlink_status(path);
  if (fs::is_directory(status)) {
    live_[number].directory = true;
    for (const auto& entry : fs::directory_iterator(path)) {
      const int child = load(entry.path());
      live_[number].names[entry.path().filename()] = child;
    }
  } else if (fs::is_symlink(status)) {
    live_[number].link = true;
    live_[number].data = fs::read_symlink(path);
  } else {
    live_[number].data = content_of(path);
  }
  return number;
}

// The node as the program finds it; kNone: there is nothing.
int Disk::find(const std::string& path) const {
  int node = 0;
  for (const auto& part : fs::path(path).lexically_relative(root_)) {
    if (part == ".") continue;
    const auto& names = live_[node].names;
    const auto found = names.find(part);
    if (found == names.end()) return kNone;
    node = found->second;
  }
  return node;
}

Disk::Entry Disk::entry_of(const std::string& path, int node) const {
  const fs::path p(path);
  return {find(p.parent_path()), p.filename(), node};
}

void Disk::change_names(std::vector<Entry> entries) {
  for (const Entry& e : entries) {
    if (e.directory == kNone) return;
  }
  Pending change;
  change.entries = std::move(entries);
  put(live_, change, Kept::everything);
  pending_.push_back(std::move(change));
}

void Disk::change_bytes(Pending change) {
  if (change.file == kNone) return;
  put(live_, change, Kept::everything);
  pending_.push_back(std::move(change));
}

void Disk::rename(const Change& change) {
  const int node = find(change.path), other = find(change.to);
  if (node == kNone) return;
  const bool swap = change.kind == Change::Kind::exchange;
  if (swap && other == kNone) return;
  change_names({entry_of(change.path, swap ? other : kNone), entry_of(change.to, node)});
}

void Disk::remove(const std::string& path) {
  const int node = find(path);
  if (node != kNone && live_[node].names.empty()) change_names({entry_of(path, kNone)});
}

void Disk::sync(int node) {
  if (node == kNone) return;
  const auto is_durable = [&](const Pending& p) {
    if (p.entries.empty()) return p.file == node;
    return std::any_of(p.entries.begin(), p.entries.end(),
                       [&](const Entry& e) { return e.directory == node; });
  };
  std::vector<Pending> left;
  for (Pending& p : pending_) {
    if (!is_durable(p)) {
      left.push_back(std::move(p));
      continue;
    }
    put(durable_, p, Kept::everything);
    for (const Entry& e : p.entries) supersede(&left, e);
  }
  pending_ = std::move(left);
}

// What was done to a name before can't come after what is durable now.
void Disk::supersede(std::vector<Pending>* earlier, const Entry& entry) {
  const auto same = [&](const Entry& e) {
    return e.directory == entry.directory && e.name == entry.name;
  };
  std::erase_if(*earlier, [&](Pending& p) {
    return std::erase_if(p.entries, same) > 0 && p.entries.empty();
  });
}

void Disk::apply(const Change& change) {
  using Kind = Change::Kind;
  const bool makes = change.kind == Kind::create || change.kind == Kind::make_directory ||
                     change.kind == Kind::link;
  if (makes && find(change.path) == kNone) {
    Node made;
    made.directory = change.kind == Kind::make_directory;
    made.link = change.kind == Kind::link;
    if (made.link) made.data = change.to;
    live_.push_back(made);
    durable_.push_back(made);
    return change_names({entry_of(change.path, static_cast<int>(live_.size()) - 1)});
  }
  if (change.kind == Kind::create && change.empties) {
    return change_bytes({{}, find(change.path), true, 0, ""});
  }
  if (change.kind == Kind::write) {
    return change_bytes({{}, find(change.path), false, change.at, change.data});
  }
  if (change.kind == Kind::resize) {
    const int node = find(change.path);
    const std::uint64_t least = change.grows && node != kNone ? live_[node].data.size() : 0;
    return change_bytes({{}, node, true, std::max(change.at, least), ""});
  }
  if (change.kind == Kind::rename || change.kind == Kind::exchange) return rename(change);
  if (change.kind == Kind::remove) return remove(change.path);
  if (change.kind == Kind::sync) return sync(find(change.path));
}

bool Disk::divisible(std::size_t change) const {
  return pending_[change].entries.empty() && pending_[change].data.size() > kPiece;
}

void Disk::put(std::vector<Node>& nodes, const Pending& change, Kept kept) {
  if (kept == Kept::nothing) return;
  for (const Entry& e : change.entries) {
    if (e.node == kNone) {
      nodes[e.directory].names.erase(e.name);
    } else {
      nodes[e.directory].names[e.name] = e.node;
    }
  }
  if (!change.entries.empty()) return;
  std::string& data = nodes[change.file].data;
  if (change.resize) return data.resize(change.at);
  const std::string_view bytes = change.data;
  const std::size_t first = std::min(kPiece - change.at % kPiece, bytes.size());
  if (kept != Kept::all_but_first) put_bytes(&data, change.at, bytes.substr(0, first));
  if (kept != Kept::first_piece) put_bytes(&data, change.at + first, bytes.substr(first));
}

void Disk::list(const std::vector<Node>& nodes, int node, const std::string& path, Files* out) {
  for (const auto& [name, child] : nodes[node].names) {
    const Node& n = nodes[child];
    const std::string full = path + name;
    if (n.directory) {
      (*out)[full + "/"] = "";
      list(nodes, child, full + "/", out);
    } else {
      (*out)[full] = (n.link ? "->" : "") + n.data;
    }
  }
}

Disk::Files Disk::after_loss(const std::vector<Kept>& kept) const {
  std::vector<Node> nodes = durable_;
  for (std::size_t i = 0; i < pending_.size(); ++i) put(nodes, pending_[i], kept[i]);
  Files out;
  list(nodes, 0, "", &out);
  return out;
}

void materialize(const Disk::Files& files, const std::string& root) {
  fs::remove_all(root);
  fs::create_directories(root);
  for (const auto& [name, content] : files) {
    const std::string path = root + "/" + name;
    if (name.ends_with("/")) {
      fs::create_directory(path);
    } else if (content.starts_with("->")) {
      fs::create_symlink(content.substr(2), path);
    } else {
      std::ofstream(path, std::ios::binary) << content;
    }
  }
}

std::vector<std::vector<Disk::Kept>> losses(const Disk& disk, unsigned random, unsigned seed) {
  using Kept = Disk::Kept;
  const std::size_t n = disk.pending();
  const std::vector<Kept> none(n, Kept::nothing), all(n, Kept::everything);
  std::vector<std::vector<Kept>> out = {none};
  if (n == 0) return out;
  out.push_back(all);
  const auto with = [&](std::vector<Kept> base, std::size_t i, Kept kept) {
    base[i] = kept;
    out.push_back(std::move(base));
  };
  for (std::size_t i = 0; n > 1 && i < n; ++i) {
    with(all, i, Kept::nothing);
    with(none, i, Kept::everything);
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (!disk.divisible(i)) continue;
    with(all, i, Kept::first_piece);
    with(all, i, Kept::all_but_first);
    with(none, i, Kept::first_piece);
  }
  std::mt19937 dice(seed);
  for (unsigned round = 0; n > 2 && round < random; ++round) {
    std::vector<Kept> some = none;
    for (Kept& kept : some) kept = dice() % 2 ? Kept::everything : Kept::nothing;
    out.push_back(std::move(some));
  }
  return out;
}

}  // namespace bellows::fault_test
