// SPDX-License-Identifier: Apache-2.0
// The tree of SHA-256, against answers that Python's hashlib gave.
#include <criterion/criterion.h>

#include <string>
#include <vector>

#include "modelstore/digest/tree_digest.h"

using namespace bellows;

namespace {

/// The bytes 0 to 250 again and again.
std::string sample(std::uint64_t bytes) {
  std::string data(bytes, '\0');
  for (std::uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i % 251);
  return data;
}

std::string root_of(const std::string& data) {
  auto hasher = TreeHasher::make();
  cr_assert(hasher.ok());
  std::vector<ModelDigest> leaves;
  for (std::uint64_t i = 0; i < leaf_count(data.size()); ++i) {
    const auto leaf = hasher->leaf(std::string_view(data).substr(i * kLeafBytes, kLeafBytes));
    cr_assert(leaf.ok());
    leaves.push_back(*leaf);
  }
  const auto root = hasher->root(leaves, data.size());
  cr_assert(root.ok());
  return root->to_string();
}

struct KnownRoot {
  std::uint64_t bytes;
  const char* root;
};
constexpr KnownRoot kKnown[] = {
    {0, "fc8381eb5ee90fab128054a6df6bf258bafe6c6b4ae48db5040bfeafc5733a33"},
    {1, "2d22f12c5405d69122ae63ebc2ca68c63898f38fdda68c8f7dc9f452dc388109"},
    {1000, "0fa4878b8d26d683aa5922d81857be59d699980a61b21c0e557a1621cf4dfe66"},
    {1048575, "f910e2bd239e05b5f20692a7e46f5ce86731168f9409e26c1992ecc1869a4165"},
    {1048576, "62d93980915f7e6b613aba402533add59b2893b730518ad1a7f84d740aab93b7"},
    {1048577, "84edee416f6002917deaac89dcb17d8ac546723483eb9fdf20ec46a14e00dd1a"},
    {2097152, "8c140fabdfd1be1787c457d38a6e7740bd600499292ecc72bd297cb22556880c"},
    {3145728, "c4eedd2cc811b7473b50ff43bdb23955d9dd811e725f4f3d098aa94a64bf7763"},
    {5242897, "4cfa982769d8ff58b10ecfe944db52e280b8c334a76c3330bf4e5d413010e791"},
    {7340032, "eed4c2122aba55de27bc9943a87e43fbbb998a30410915590e8379fa55ac8cf3"},
};

}  // namespace

Test(tree_digest, is_that_of_another_program, .timeout = 60) {
  for (const KnownRoot& known : kKnown)
    cr_expect(root_of(sample(known.bytes)) == known.root, "of %lu bytes", known.bytes);
}

Test(tree_digest, tells_pieces_from_nodes_and_lengths, .timeout = 10) {
  auto hasher = TreeHasher::make();
  cr_assert(hasher.ok());
  const ModelDigest a = *hasher->leaf("a"), b = *hasher->leaf("b");
  std::string both(a.bytes.begin(), a.bytes.end());
  both.append(b.bytes.begin(), b.bytes.end());
  const auto node = hasher->root({a, b}, kLeafBytes + 1);
  const auto piece = hasher->root({*hasher->leaf(both)}, both.size());
  cr_expect(node.ok() && piece.ok() && *node != *piece);
  const auto longer = hasher->root({a, b}, kLeafBytes + 2);
  cr_expect(longer.ok() && *longer != *node, "a tree of the same leaves and another length");
  cr_expect(!hasher->root({a, b}, kLeafBytes).ok() && !hasher->root({}, 0).ok());
}

Test(model_digest, is_written_in_one_way_only, .timeout = 10) {
  const std::string text = kKnown[0].root;
  const auto digest = ModelDigest::parse(text);
  cr_assert(digest.has_value());
  cr_expect(digest->to_string() == text);
  std::string upper = text;
  for (char& c : upper) c = static_cast<char>(c >= 'a' ? c - 'a' + 'A' : c);
  cr_expect(!ModelDigest::parse(upper) && !ModelDigest::parse(text + "0") &&
            !ModelDigest::parse(text.substr(1)) && !ModelDigest::parse(""));
  cr_expect(!ModelDigest::parse(text.substr(1) + "g"));
}
