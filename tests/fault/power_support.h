// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/fault/trace_support.h"

// What a power loss may leave of the changes that a program made to a directory.
namespace bellows::fault_test {

/// A change as the program asked for it. Paths are absolute.
struct Change {
  enum class Kind { create, write, resize, sync, make_directory, rename, exchange, remove, link };
  Kind kind = Kind::sync;
  std::string path;
  std::string to;                  ///< of rename and exchange; what a link leads to
  std::string data;                ///< of write
  std::uint64_t at = 0;            ///< of write; the size that resize sets
  bool empties = false;            ///< create: the file that is there is emptied
  bool grows = false;              ///< resize: a file that is larger stays so
  std::uint64_t acknowledged = 0;  ///< the newest step a rank had been told of when this began

  std::string text(const std::string& root) const;
};

/// The change that a call asks for below `root`; nothing for other calls, and for those that leave
/// no trace on a disk. Aborts at a call that changes files in a way unknown here.
std::optional<Change> change_of(const Call& call, const std::string& root);

/// The files of a directory, after changes of which some have reached the disk. What is promised:
/// fsync of a file makes its bytes durable, fsync of a directory the names in it, a rename happens
/// as a whole. All else may be there after a power loss or not, in any order, writes in pieces of
/// 4096 bytes.
class Disk {
 public:
  /// All that is below `root` now is durable.
  explicit Disk(const std::string& root);

  void apply(const Change& change);

  /// What is not durable yet, the oldest first.
  std::size_t pending() const { return pending_.size(); }
  /// Whether a pending change has parts that may be there without the others.
  bool divisible(std::size_t change) const;

  /// How much of one pending change is there.
  enum class Kept { nothing, everything, first_piece, all_but_first };
  /// The files after a power loss, by path relative to the root; "/" at the end: a directory;
  /// "->" before the content: a link.
  using Files = std::map<std::string, std::string>;
  Files after_loss(const std::vector<Kept>& kept) const;
  /// And without one.
  Files now() const { return after_loss(std::vector<Kept>(pending_.size(), Kept::everything)); }

 private:
  struct Node {
    bool directory = false;
    bool link = false;
    std::string data;                  ///< or what a link leads to
    std::map<std::string, int> names;  ///< of a directory
  };
  struct Entry {
    int directory;
    std::string name;
    int node;  ///< kNone: the name is removed
  };
  /// Names that change at once, or bytes of a file.
  struct Pending {
    std::vector<Entry> entries;
    int file = 0;
    bool resize = false;
    std::uint64_t at = 0;
    std::string data;
  };

  static constexpr int kNone = -1;

  int find(const std::string& path) const;
  Entry entry_of(const std::string& path, int node) const;
  int load(const std::string& path);
  void change_names(std::vector<Entry> entries);
  void change_bytes(Pending change);
  void rename(const Change& change);
  void remove(const std::string& path);
  void sync(int node);
  static void supersede(std::vector<Pending>* earlier, const Entry& entry);
  static void put(std::vector<Node>& nodes, const Pending& change, Kept kept);
  static void list(const std::vector<Node>& nodes, int node, const std::string& path, Files* out);

  std::string root_;
  std::vector<Node> live_;     ///< what the program sees; the first is the root
  std::vector<Node> durable_;  ///< the same nodes on the disk
  std::vector<Pending> pending_;
};

/// Makes the directory hold exactly these files.
void materialize(const Disk::Files& files, const std::string& root);

/// Every way to lose power that is tried for a number of pending changes: all and none kept, each
/// one alone kept or lost, whole or in part, and some at random.
std::vector<std::vector<Disk::Kept>> losses(const Disk& disk, unsigned random, unsigned seed);

}  // namespace bellows::fault_test
