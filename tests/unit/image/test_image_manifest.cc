// SPDX-License-Identifier: Apache-2.0
// What registries say about images, and how images in them are named.
#include <criterion/criterion.h>

#include <string>

#include "common/container/image_reference.h"
#include "image/layout/digest.h"
#include "image/layout/manifest.h"

using namespace bellows;
using namespace bellows::image;

TestSuite(image_manifest, .timeout = 20);
TestSuite(image_reference, .timeout = 20);

namespace {

const std::string kDigest = "sha256:" + std::string(64, 'a');

std::string manifest_with(const std::string& config, const std::string& layers) {
  return "{\"schemaVersion\": 2, \"config\": " + config + ", \"layers\": " + layers + "}";
}

std::string descriptor(const std::string& digest) {
  return "{\"digest\": \"" + digest + "\", \"size\": 3}";
}

void named(const char* written, const char* canonical) {
  const auto reference = container::parse_reference(written);
  cr_assert(reference.ok(), "%s: %s", written, reference.error().text.c_str());
  cr_expect(reference->text() == canonical, "%s: %s", written, reference->text().c_str());
  const auto again = container::parse_reference(reference->text());
  cr_expect(again.ok() && *again == *reference, "%s is read as another one", canonical);
}

}  // namespace

Test(image_reference, as_pyxis_and_docker_have_them) {
  named("ubuntu", "docker://docker.io/library/ubuntu:latest");
  named("docker://ubuntu:22.04", "docker://docker.io/library/ubuntu:22.04");
  named("nvidia/cuda:12.0-base", "docker://docker.io/nvidia/cuda:12.0-base");
  named("nvcr.io#nvidia/pytorch:24.01-py3", "docker://nvcr.io/nvidia/pytorch:24.01-py3");
  named("docker://nvcr.io/nvidia/pytorch:24.01-py3", "docker://nvcr.io/nvidia/pytorch:24.01-py3");
  named("docker://alice@registry.example.org:5000#team/x",
        "docker://alice@registry.example.org:5000/team/x:latest");
  named("$oauthtoken@nvcr.io#nvidia/x:1", "docker://$oauthtoken@nvcr.io/nvidia/x:1");
  named("localhost#x", "docker://localhost/x:latest");
  named("127.0.0.1:5000/x:1", "docker://127.0.0.1:5000/x:1");
  named(("ubuntu@" + kDigest).c_str(), ("docker://docker.io/library/ubuntu@" + kDigest).c_str());
  named(("ubuntu:22.04@" + kDigest).c_str(),
        ("docker://docker.io/library/ubuntu@" + kDigest).c_str());
  named("registry-1.docker.io#library/ubuntu", "docker://docker.io/library/ubuntu:latest");
  for (const char* brief :
       {"ubuntu", "ubuntu:22.04", "nvidia/cuda:12", "h.org/x", "h.org:5000/x:1"})
    cr_expect(container::parse_reference(brief)->brief() == brief, "%s", brief);
  const auto reference = container::parse_reference("bob@h.org#x:1");
  cr_expect(reference->place() == "docker://h.org/x:1" && reference->user == "bob");
}

Test(image_reference, what_is_none) {
  for (const char* text : {"",
                           "docker://",
                           "Ubuntu",
                           "ubuntu:",
                           "ubuntu:a b",
                           "-ubuntu",
                           "a//b",
                           "a/../b",
                           "a/..",
                           "h.org#",
                           "h.org:0#x",
                           "h.org:99999#x",
                           "h.org:x#y",
                           "bare#x",
                           "a@b@c",
                           "x@sha256:12",
                           "x:-t",
                           "--option",
                           "x y",
                           "h.org#x#y",
                           "http://h.org/x",
                           "a@#x",
                           "h.org:5000:1#x",
                           "h..org/../x"}) {
    const auto reference = container::parse_reference(text);
    cr_expect(not(reference.ok()), "%s is taken as %s", text,
              reference ? reference->text().c_str() : "");
  }
  cr_expect(not(container::parse_reference(std::string(2000, 'a')).ok()));
}

Test(image_manifest, of_an_image) {
  const auto manifest = parse_manifest(manifest_with(
      descriptor(kDigest), "[" + descriptor(kDigest) + "," + descriptor(kDigest) + "]"));
  cr_assert(manifest.ok(), "%s", manifest.error().text.c_str());
  cr_expect(manifest->layers.size() == 2 && manifest->layers[0].digest == kDigest &&
            manifest->layers[0].bytes == 3);
  cr_expect(parse_manifest(manifest_with(descriptor(kDigest), "null")).ok());
}

Test(image_manifest, that_is_none) {
  const std::string good = descriptor(kDigest);
  for (const std::string& text :
       {std::string("[]"), std::string("{"), std::string("{}"), manifest_with("{}", "[]"),
        manifest_with(descriptor("sha256:../../etc/passwd"), "[]"),
        manifest_with(descriptor("sha512:" + std::string(64, 'a')), "[]"),
        manifest_with(good, "{}"), manifest_with(good, "[3]"),
        manifest_with(good, "[{\"digest\": \"" + kDigest + "\", \"size\": -1}]"),
        manifest_with("{\"digest\": 3, \"size\": 3}", "[]"), std::string(kMostJson + 1, ' ')})
    cr_expect(not(parse_manifest(text).ok()), "%s", text.substr(0, 200).c_str());
  std::string many = "[" + good;
  for (std::size_t i = 0; i < kMostLayers; ++i) many += "," + good;
  cr_expect(not(parse_manifest(manifest_with(good, many + "]")).ok()));
}

Test(image_manifest, configuration) {
  const auto config = parse_config(
      "{\"config\": {\"Env\": [\"A=1\", \"B=two words\", \"C=a\\nLD_PRELOAD=x\", \"1=2\", \"D\", "
      "7], "
      "\"WorkingDir\": \"/work\"}, \"rootfs\": {\"diff_ids\": [\"" +
      kDigest + "\"]}}");
  cr_assert(config.ok(), "%s", config.error().text.c_str());
  cr_expect(config->environment == std::vector<std::string>({"A=1", "B=two words"}));
  cr_expect(config->workdir == "/work" && config->diff_ids.size() == 1);
  const auto words = parse_config(R"({"config": {"Entrypoint": ["/e", "-x"], "Cmd": null}})");
  cr_expect(words.ok() && words->entrypoint.size() == 2 && words->command.empty());
  for (const char* bad : {R"("x")", "[1]", R"(["a\u0000b"])"})
    cr_expect(not(parse_config(std::string("{\"config\": {\"Cmd\": ") + bad + "}}").ok()), "%s",
              bad);
  cr_expect(parse_config("{}").ok());
  cr_expect(parse_config("{\"config\": null, \"rootfs\": 3}").ok());
  cr_expect(not(parse_config("{\"rootfs\": {\"diff_ids\": [\"x\"]}}").ok()));
  cr_expect(not(parse_config("{\"rootfs\": {\"diff_ids\": {}}}").ok()));
}

Test(image_manifest, layout_index) {
  cr_expect(parse_layout_index("{\"manifests\": [" + descriptor(kDigest) + "]}").ok());
  cr_expect(not(parse_layout_index("{\"manifests\": []}").ok()));
  cr_expect(not(parse_layout_index("{}").ok()));
}

Test(image_manifest, digests) {
  cr_expect(*digest_of("") ==
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  cr_expect(hex_of(*digest_of("")).size() == 64);
}
