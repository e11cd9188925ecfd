// SPDX-License-Identifier: Apache-2.0
// HDF5 files as models, also those that are made to harm.
#include <criterion/criterion.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/hdf5_file.h"
#include "modelstore/catalogue/catalogue.h"
#include "tests/unit/modelstore/loader_process.h"
#include "tests/unit/modelstore/model_files.h"
#include "tests/unit/support/scratch_dir.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::model_test;
using hdf5::Hid;

namespace {

using Extents = std::vector<hsize_t>;
using catalogue::TensorType;

Hid space_of(const Extents& shape) {
  return shape.empty()
             ? Hid(H5Screate(H5S_SCALAR), H5Sclose)
             : Hid(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                   H5Sclose);
}

/// What a dataset is made with.
struct Storage {
  Storage() : list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose) {}
  Storage& chunked(const Extents& chunk) {
    cr_assert(H5Pset_chunk(list.get(), static_cast<int>(chunk.size()), chunk.data()) >= 0);
    return *this;
  }
  Storage& deflated() {
    cr_assert(H5Pset_shuffle(list.get()) >= 0 && H5Pset_deflate(list.get(), 1) >= 0);
    return *this;
  }
  Hid list;
};

/// A file that a test writes.
class TestFile {
 public:
  explicit TestFile(const std::string& name = "m.h5")
      : path_(scratch_.path() + "/" + name),
        file_(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose) {
    cr_assert(static_cast<bool>(file_));
  }
  void add(const std::string& name, TensorType type, const Extents& shape, const std::string& data,
           const Storage& storage = {}) {
    const Hid of_file = hdf5::file_type(static_cast<std::uint32_t>(type));
    add(name, of_file.get(), shape, storage, data);
  }
  void add(const std::string& name, hid_t type, const Extents& shape, const Storage& storage = {},
           const std::string& data = "") {
    const Hid parents(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    H5Pset_create_intermediate_group(parents.get(), 1);
    const Hid dataset(H5Dcreate2(file_.get(), name.c_str(), type, space_of(shape).get(),
                                 parents.get(), storage.list.get(), H5P_DEFAULT),
                      H5Dclose);
    cr_assert(static_cast<bool>(dataset), "%s", name.c_str());
    if (!data.empty())
      cr_assert(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()) >= 0);
  }
  hid_t id() const { return file_.get(); }
  const std::string& folder() const { return scratch_.path(); }
  /// Closes it.
  const std::string& path() {
    cr_assert(file_.close());
    return path_;
  }

 private:
  ScratchDir scratch_;
  std::string path_;
  Hid file_;
};

std::string refused(TestFile& file) { return refusal(file.path(), ErrorKind::corrupt); }

/// Refused for that reason.
void expect_refused(const char* reason, const std::function<void(TestFile&)>& make) {
  TestFile file;
  file.add("good", TensorType::f32, {2}, std::string(8, 'x'));
  make(file);
  const std::string text = refused(file);
  cr_expect(has(text, reason) && has(text, file.path()), "%s", text.c_str());
}

void expect_tensor(const catalogue::View& view, const std::string& memory, const std::string& name,
                   const std::string& data) {
  const std::uint32_t i = view.find(name.data(), name.size());
  cr_assert_lt(i, view.count(), "%s is missing", name.c_str());
  const auto& record = view.record(i);
  cr_expect(record.bytes == data.size() && memory.compare(record.offset, data.size(), data) == 0,
            "%s has other bytes", name.c_str());
}

}  // namespace

Test(model_hdf5, has_a_tensor_for_each_dataset, .timeout = 60) {
  TestFile file("m.hdf5");
  const std::string large = random_bytes(3000 * 2500 * 4), small = random_bytes(300 * 70 * 8);
  file.add("layer1/weight", TensorType::f32, {3000, 2500}, large);
  file.add("layer1/packed", TensorType::f32, {3000, 2500}, large,
           std::move(Storage().chunked({700, 300}).deflated()));
  file.add("layer1/deep/small", TensorType::i64, {300, 70}, small,
           std::move(Storage().chunked({41, 70})));
  file.add("brain", TensorType::bf16, {6}, "brainfloats!");
  file.add("half", TensorType::f16, {2}, "half");
  file.add("yes", TensorType::boolean, {3}, std::string("\1\0\1", 3));
  file.add("scalar", TensorType::f64, {}, "a double");
  file.add("unwritten", TensorType::u8, {5}, "");
  file.add("none", TensorType::u8, {0, 3}, "");
  LoaderProcess loader;
  loader.load(file.path());
  const LoaderMessage sized = loader.next();
  cr_assert(sized.word == LoaderWord::sized, "%s", sized.to_error().text.c_str());
  const LoaderMessage done = loader.fill(sized.bytes);
  cr_assert(done.word == LoaderWord::done, "%s", done.to_error().text.c_str());
  const std::string memory = loader.memory();
  cr_expect(done.digest == model_test::digest_of(memory));
  catalogue::View view;
  cr_assert_null(view.open(memory.data() + sized.catalogue_at, sized.catalogue_bytes));
  cr_expect_eq(view.count(), 9);
  for (const char* name : {"layer1/weight", "layer1/packed"})
    expect_tensor(view, memory, name, large);
  expect_tensor(view, memory, "layer1/deep/small", small);
  expect_tensor(view, memory, "brain", "brainfloats!");
  expect_tensor(view, memory, "half", "half");
  expect_tensor(view, memory, "yes", std::string("\1\0\1", 3));
  expect_tensor(view, memory, "scalar", "a double");
  expect_tensor(view, memory, "unwritten", std::string(5, '\0'));
  expect_tensor(view, memory, "none", "");
}

Test(model_hdf5, opens_no_other_file, .timeout = 60) {
  const ScratchDir scratch;
  const std::string other = scratch.path() + "/other.h5";
  {
    const Hid made(H5Fcreate(other.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    const Hid there(H5Dcreate2(made.get(), "x", H5T_IEEE_F32LE, space_of({2}).get(), H5P_DEFAULT,
                               H5P_DEFAULT, H5P_DEFAULT),
                    H5Dclose);
    cr_assert(static_cast<bool>(there));
  }
  expect_refused("a link to another file", [&](TestFile& file) {
    cr_assert(H5Lcreate_external(other.c_str(), "x", file.id(), "out", H5P_DEFAULT, H5P_DEFAULT) >=
              0);
  });
  expect_refused("a virtual dataset", [&](TestFile& file) {
    const Storage storage;
    cr_assert(H5Pset_virtual(storage.list.get(), space_of({2}).get(), other.c_str(), "x",
                             space_of({2}).get()) >= 0);
    file.add("view", H5T_IEEE_F32LE, {2}, storage);
  });
  expect_refused("its data are in other files", [&](TestFile& file) {
    const Storage storage;
    cr_assert(H5Pset_external(storage.list.get(), "/etc/shadow", 0, 8) >= 0);
    file.add("shadow", H5T_IEEE_F32LE, {2}, storage);
  });
}

Test(model_hdf5, refuses_what_is_no_tensor, .timeout = 60) {
  expect_refused("a link by name", [](TestFile& file) {
    cr_assert(H5Lcreate_soft("/good", file.id(), "again", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  });
  expect_refused("a filter other than", [](TestFile& file) {
    Storage storage;
    storage.chunked({2});
    cr_assert(H5Pset_scaleoffset(storage.list.get(), H5Z_SO_INT, 4) >= 0);
    file.add("scaled", H5T_STD_I32LE, {2}, storage);
  });
  expect_refused("more than 256 MiB", [](TestFile& file) {
    file.add("huge", H5T_IEEE_F64LE, {1 << 26}, std::move(Storage().chunked({1 << 26})));
  });
  expect_refused("its type is none", [](TestFile& file) {
    const Hid text(H5Tcopy(H5T_C_S1), H5Tclose);
    file.add("text", text.get(), {2});
  });
  expect_refused("its type is none", [](TestFile& file) { file.add("b", H5T_IEEE_F32BE, {2}); });
  expect_refused("too many dimensions",
                 [](TestFile& file) { file.add("deep", H5T_STD_U8LE, Extents(9, 1)); });
  expect_refused("too many groups", [](TestFile& file) {
    std::string name = "a";
    for (int i = 0; i < 100; ++i) name += "/a";
    file.add(name, H5T_STD_U8LE, {1});
  });
}

Test(model_hdf5, refuses_what_is_no_file_of_that_kind, .timeout = 60) {
  TestFile empty;
  cr_expect(has(refused(empty), "has no dataset"));
  TestFile file;
  file.add("w", TensorType::f32, {1000}, random_bytes(4000));
  const std::string path = file.path();
  std::filesystem::resize_file(path, 1500);
  cr_expect(has(refusal(path, ErrorKind::corrupt), path));
  write_file(path, "no such file");
  cr_expect(has(refusal(path, ErrorKind::corrupt), "no HDF5 file"));
  write_file(path, "");
  cr_expect(has(refusal(path, ErrorKind::corrupt), "no HDF5 file"));
}

// Whatever its bytes are, the loader says something or ends, and takes nothing with it.
Test(model_hdf5, survives_damage, .timeout = 100) {
  TestFile file;
  file.add("layer1/w", TensorType::f32, {1000}, random_bytes(4000),
           std::move(Storage().chunked({100}).deflated()));
  const std::string path = file.path();
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t at = 8; at < std::min<std::size_t>(good.size(), 2100); at += 61) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x5a);
    write_file(path, bad);
    LoaderProcess loader;
    loader.load(path);
    const LoaderMessage said = loader.next();
    if (said.word == LoaderWord::failed) {
      cr_expect(has(said.to_error().text, path), "%s", said.to_error().text.c_str());
    } else if (said.bytes <= (64 << 20)) {
      const LoaderWord end = loader.fill(said.bytes).word;
      cr_expect(end == LoaderWord::done || end == LoaderWord::failed);
    }
  }
}
