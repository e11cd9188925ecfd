// SPDX-License-Identifier: Apache-2.0
// What the --container options and variables say, their one text, and what a contract lets a step
// have of it.
#include <criterion/criterion.h>

#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/container/mount_grammar.h"
#include "common/container/options.h"
#include "common/container/rights.h"
#include "common/container/spec_text.h"
#include "common/text.h"

using namespace bellows;
using namespace bellows::container;

TestSuite(container_options, .timeout = 20);

namespace {

/// A command of ann's, run in /home/ann. `line` has options without "container-", and variables,
/// with "|" between them. `text` is what is handed on, or "! " and the complaint.
struct Case {
  const char* line;
  const char* text;
};

const Place kHere = {"/home/ann", [](const std::string& path) {
                       return path == "/home/ann/foo.sqsh" || path == "/home/ann/busybox" ||
                              path == "/home/ann/sub/a:b.sqsh";
                     }};

const OptionInfo* find(std::string_view word) {
  for (const OptionInfo& info : options())
    if (info.word == word) return &info;
  return nullptr;
}

Result<Spec> collect(std::string_view line) {
  Collector collector(kHere);
  std::map<std::string, std::string> variables;
  for (std::string_view word : split(line, '|'))
    if (word.starts_with("BELLOWS_") || word.starts_with("PYXIS_"))
      variables[std::string(word.substr(0, word.find('=')))] = word.substr(word.find('=') + 1);
  const auto get = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  for (const Setting& setting : read_variables(get))
    if (auto status = collector.take(setting); !status.ok())
      return Error{ErrorKind::invalid, setting.variable + ": " + status.error().text};
  for (std::string_view word : split(line, '|')) {
    const OptionInfo* info = find(word.substr(0, word.find('=')));
    if (!info) continue;
    const auto equals = word.find('=');
    const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
    if (auto status = collector.take(info->option, value); !status.ok()) return status.error();
  }
  return collector.spec();
}

std::string told(std::string_view line) {
  const auto spec = collect(line);
  if (!spec) return "! " + spec.error().text;
  const std::string text = spec_text(*spec);
  const auto back = parse_spec(text);
  cr_expect(back.ok(), "%s does not read back: %s", text.c_str(),
            back.ok() ? "" : back.error().text.c_str());
  if (back)
    cr_expect(*back == *spec, "%s reads back as %s", text.c_str(), spec_text(*back).c_str());
  return text;
}

void check(const Case* cases, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::string got = told(cases[i].line);
    cr_expect(got == cases[i].text, "\n    line: %s\n    got: %s\n    not: %s", cases[i].line,
              got.c_str(), cases[i].text);
  }
}

const Case kImages[] = {
    {"image=/images/a.sqsh", "image:/images/a.sqsh"},
    {"image=foo.sqsh", "image:/home/ann/foo.sqsh"},
    {"image=./foo.sqsh", "image:/home/ann/foo.sqsh"},
    {"image=./none.sqsh", "image:/home/ann/none.sqsh"},
    {"image=../bob/x.sqsh", "image:/home/bob/x.sqsh"},
    {"image=/images/../images//b/./c.sqsh/", "image:/images/b/c.sqsh"},
    {"image=../../../../etc/x", "image:/etc/x"},
    {"image=busybox", "image:/home/ann/busybox"},
    {"image=sub/a:b.sqsh", "image:/home/ann/sub/a:b.sqsh"},
    {"image=/i/a,b%2C c.sqsh", "image:/i/a%2Cb%252C c.sqsh"},
    {"image=.", "image:/home/ann"},
    {"image=none.sqsh",
     "! \"none.sqsh\" is not a file in /home/ann; give the path of a squashfs file, or "
     "docker://none.sqsh for an image in a registry"},
    {"image=docker://none.sqsh", "image:docker://docker.io/library/none.sqsh:latest"},
    {"image=ubuntu:22.04", "image:docker://docker.io/library/ubuntu:22.04"},
    {"image=nvcr.io#nvidia/pytorch:24.01", "image:docker://nvcr.io/nvidia/pytorch:24.01"},
    {"image=docker://bob@h.org:5000#x/y", "image:docker://bob@h.org:5000/x/y:latest"},
    {"image=docker://Ubuntu",
     "! \"docker://Ubuntu\" is not the name of an image in a registry: its name has other "
     "characters than a-z, 0-9 and single ones of \"._-/\"; write docker://REGISTRY/NAME:TAG or "
     "pyxis's [USER@][REGISTRY#]NAME[:TAG]"},
    {"image=dockerd://ubuntu",
     "! \"dockerd://ubuntu\" is neither a path nor an image in a registry, which begins with "
     "docker://"},
    {"image=", "! it has no value"},
    {"image=/", "image:/"},
    {"image=/a\nb", "! it has a control character"},
    {"image=/a|image=/a", "image:/a"},
    {"image=/a|image=/b", "! it is given twice, with \"/a\" and \"/b\"; give it once"},
};

const Case kMounts[] = {
    {"mounts=/a", "mount:/a"},
    {"mounts=/a:/b", "mount:/a:/b"},
    {"mounts=/a:/b,/c:/d:ro", "mount:/a:/b,mount:/c:/d:ro"},
    {"mounts=/a:/b:ro+noexec+bind+x-create=none", "mount:/a:/b:ro+noexec+bind+x-create=none"},
    {"mounts=/a:/b:rw+rbind+exec+nosuid+nodev+private+rprivate+x-create=auto", "mount:/a:/b"},
    {"mounts=/a:/b:ro+rw", "mount:/a:/b"},
    {"mounts=/a:/b:x-create=dir", "mount:/a:/b"},
    {"mounts=/a:/b:x-create=file", "mount:/a:/b"},
    {"mounts=/a:/b:", "mount:/a:/b"},
    {"mounts=./data", "mount:/home/ann/data"},
    {"mounts=./data:/data", "mount:/home/ann/data:/data"},
    {"mounts=../data:data:ro",
     "! mount \"../data:data:ro\": the target must be a path in the container, such as /data"},
    {"mounts=/a:./b", "mount:/a:/b"},
    {"mounts=/a:/b/../../b",
     "! mount \"/a:/b/../../b\": the target leads out of the container (cross-device link); write "
     "it as the container has it, such as /data"},
    {"mounts=/home:../home",
     "! mount \"/home:../home\": the target leads out of the container (cross-device link); write "
     "it as the container has it, such as /data"},
    {"mounts=/a:/b/../c", "mount:/a:/c"},
    {"mounts=/a/../b//c/:/d/", "mount:/b/c:/d"},
    {"mounts=/my data:/the data", "mount:/my data:/the data"},
    {"mounts=/a:/b,/a:/b", "mount:/a:/b"},
    {"mounts=/a:/b|mounts=/c:/d|mounts=/a:/b", "mount:/a:/b,mount:/c:/d"},
    {"mounts=tmpfs:/scratch", "mount:tmpfs:/scratch"},
    {"mounts=tmpfs:/scratch:size=64M+ro", "mount:tmpfs:/scratch:ro+size=64M"},
    {"mounts=tmpfs:/scratch:size=1025K", "mount:tmpfs:/scratch:size=2M"},
    {"mounts=tmpfs:/scratch:size=2G", "mount:tmpfs:/scratch:size=2048M"},
    {"mounts=umount:/mnt", "mount:umount:/mnt"},
    {"mounts=umount:/mnt:x-detach", "mount:umount:/mnt"},
    {"mounts=", "! it has no value"},
    {"mounts=a:/b",
     "! mount \"a:/b\": the source must be an absolute path, one that begins with \"./\" or "
     "\"../\", tmpfs or umount"},
    {"mounts=/a:b", "! mount \"/a:b\": the target must be a path in the container, such as /data"},
    {"mounts=/a::ro",
     "! mount \"/a::ro\": the target must be a path in the container, such as /data"},
    {"mounts=:/b", "! mount \":/b\": it is not SOURCE[:TARGET[:FLAG+FLAG]]"},
    {"mounts=/a,", "! mount \"\": it is not SOURCE[:TARGET[:FLAG+FLAG]]"},
    {"mounts=/a:/b:ro:x", "! mount \"/a:/b:ro:x\": it is not SOURCE[:TARGET[:FLAG+FLAG]]"},
    {"mounts=tmpfs",
     "! mount \"tmpfs\": the target must be a path in the container, such as /data"},
    {"mounts=umount",
     "! mount \"umount\": the target must be a path in the container, such as /data"},
    {"mounts=/a:/",
     "! mount \"/a:/\": the target is the container's root, which is the image's place"},
    {"mounts=/a:/b/..",
     "! mount \"/a:/b/..\": the target is the container's root, which is the image's place"},
    {"mounts=/", "! mount \"/\": the target is the container's root, which is the image's place"},
    {"mounts=/dev",
     "! mount \"/dev\": the target is the container's own /dev; mount what is needed below it, as "
     "at /dev/x"},
    {"mounts=/dev/shm,/a:/dev/x", "mount:/dev/shm,mount:/a:/dev/x"},
    {"mounts=/a:/b:suid",
     "! mount \"/a:/b:suid\": suid cannot be given: every mount is nosuid and nodev; leave it out"},
    {"mounts=/a:/b:ro+dev",
     "! mount \"/a:/b:ro+dev\": dev cannot be given: every mount is nosuid and nodev; leave it "
     "out"},
    {"mounts=/a:/b:remount+ro",
     "! mount \"/a:/b:remount+ro\": remount cannot be given: each mount is made once; give its "
     "other "
     "flags alone"},
    {"mounts=/a:/b:strictatime",
     "! mount \"/a:/b:strictatime\": strictatime cannot be given: the file system's own setting "
     "counts; leave it out, or write noatime"},
    {"mounts=tmpfs:/b:uid=0",
     "! mount \"tmpfs:/b:uid=0\": uid= cannot be given: a tmpfs belongs to its user; leave it out, "
     "and write mode= for what others may do"},
    {"mounts=/a:/b:slave+rslave+shared+rshared+private+rprivate+defaults+relatime+sync+auto+user",
     "mount:/a:/b"},
    {"mounts=/a:/b:x-move", "mount:/a:/b"},
    {"mounts=/a:/b:bind+x-move", "mount:/a:/b"},
    {"mounts=/a:/b:unbindable+ro", "mount:/a:/b:ro+unbindable"},
    {"mounts=/a:/b:runbindable", "mount:/a:/b:unbindable"},
    {"mounts=/a:/b:noatime+nodiratime", "mount:/a:/b:noatime+nodiratime"},
    {"mounts=/a:/b:nofail+silent", "mount:/a:/b:nofail+silent"},
    {"mounts=umount:/b:nofail", "mount:umount:/b:nofail"},
    {"mounts=/a:/b:x-detach", "! mount \"/a:/b:x-detach\": x-detach is only for umount"},
    {"mounts=tmpfs:/b:x-move",
     "! mount \"tmpfs:/b:x-move\": x-move is only for files and directories of the host"},
    {"mounts=tmpfs:/b:mode=0700+huge=within_size+noexec",
     "mount:tmpfs:/b:noexec+mode=700+huge=within_size"},
    {"mounts=tmpfs:/b:mode=0", "mount:tmpfs:/b:mode=0"},
    {"mounts=tmpfs:/b:mode=4755",
     "! mount \"tmpfs:/b:mode=4755\": mode=4755 is not an octal number up to 1777, such as "
     "mode=700"},
    {"mounts=tmpfs:/b:mode=",
     "! mount \"tmpfs:/b:mode=\": mode= is not an octal number up to 1777, such as mode=700"},
    {"mounts=/a:/b:mode=700", "! mount \"/a:/b:mode=700\": mode= is only for tmpfs"},
    {"mounts=tmpfs:/b:huge=2M",
     "! mount \"tmpfs:/b:huge=2M\": huge= is one of never, always, within_size, advise"},
    {"mounts=/a:/b:x-create=maybe",
     "! mount \"/a:/b:x-create=maybe\": x-create is auto, file, dir or none"},
    {"mounts=/a:/b:size=1G", "! mount \"/a:/b:size=1G\": size= is only for tmpfs"},
    {"mounts=tmpfs:/b:bind",
     "! mount \"tmpfs:/b:bind\": bind is only for files and directories of the host"},
    {"mounts=umount:/b:ro",
     "! mount \"umount:/b:ro\": umount takes no flags but nofail and silent"},
    {"mounts=/a:/b:ro++noexec",
     "! mount \"/a:/b:ro++noexec\": \"\" is not a flag; there are ro, rw, bind, rbind, exec, "
     "noexec, noatime, nodiratime, unbindable, nofail, silent, x-create=auto|file|dir|none, and "
     "for "
     "tmpfs size=N, mode=OCTAL and huge=never|always|within_size|advise"},
    {"mounts=tmpfs:/b:size=1048577", "mount:tmpfs:/b:size=2M"},
    {"mounts=tmpfs:/b:size=50%",
     "! mount \"tmpfs:/b:size=50%\": size \"50%\": it has no unit; write a number and K, M, G or "
     "T, "
     "such as 512M"},
    {"mounts=tmpfs:/b:size=0",
     "! mount \"tmpfs:/b:size=0\": size \"0K\": it is zero; write a number and K, M, G or T, such "
     "as 512M"},
};

const Case kOthers[] = {
    {"", ""},
    {"workdir=/work", "workdir:/work"},
    {"workdir=../", "workdir:/"},
    {"workdir=sub/../x", "workdir:/x"},
    {"workdir=", "! it has no value"},
    {"workdir=/a|workdir=/b", "! it is given twice, with \"/a\" and \"/b\"; give it once"},
    {"save=sub/../x.sqsh", "save:/home/ann/x.sqsh"},
    {"save=/a b/x", "save:/a b/x"},
    {"save=/tmp/", "! \"/tmp/\" is a directory; name the file to be written"},
    {"save=./", "! \"./\" is a directory; name the file to be written"},
    {"save=/a/..", "! \"/a/..\" is a directory; name the file to be written"},
    {"save=/a|save=/b", "! it is given twice, with \"/a\" and \"/b\"; give it once"},
    {"name=box", "name:box"},
    {"name=box:", "name:box"},
    {"name=box:auto", "name:box"},
    {"name=box:create", "name:box:create"},
    {"name=box:exec", "name:box:exec"},
    {"name=my-box_1.0:no_exec", "name:my-box_1.0:no_exec"},
    {"name=:exec", "! the name is empty; write NAME[:auto|create|exec|no_exec]"},
    {"name=box:attach", "! \"attach\" is not one of auto, create, exec and no_exec"},
    {"name=../x", "! the name may have only letters, digits and \"._-\""},
    {"name=..", "! the name must begin with a letter or a digit"},
    {"name=-x", "! the name must begin with a letter or a digit"},
    {"mount-home", "mount-home"},
    {"no-mount-home", "no-mount-home"},
    {"mount-home|mount-home", "mount-home"},
    {"mount-home|no-mount-home",
     "! its opposite --container-mount-home is given too; give one of them"},
    {"no-remap-root|remap-root",
     "! its opposite --no-container-remap-root is given too; give one of them"},
    {"writable|readonly", "! its opposite --container-writable is given too; give one of them"},
    {"remap-root|writable|verbose", "remap-root,writable,verbose"},
    {"readonly|no-remap-root", "no-remap-root,readonly"},
    {"env=A,B_2,A", "env:A+B_2"},
    {"env=A|env=B,A|env=C", "env:A+B+C"},
    {"env=A,,B", "! \"\" is not the name of a variable; write NAME,NAME,..."},
    {"env=A=1", "! \"A=1\" is not the name of a variable; write NAME,NAME,..."},
    {"env=2A", "! \"2A\" is not the name of a variable; write NAME,NAME,..."},
    {"unshare=net", "unshare:net"},
    {"unshare=uts,net,ipc,net", "unshare:net+ipc+uts"},
    {"unshare=uts|unshare=net", "unshare:net+uts"},
    {"unshare=pid", "! unknown namespace \"pid\", which is not one of net, ipc and uts"},
    {"unshare=net,", "! unknown namespace \"\", which is not one of net, ipc and uts"},
    {"tmp=8G", "tmp:8192M"},
    {"tmp=1k", "tmp:1M"},
    {"tmp=16T", "tmp:16777216M"},
    {"tmp=17T",
     "! size \"17T\": it is more than 16T; write a number and K, M, G or T, such as 512M"},
    {"tmp=18446744073709551615K",
     "! size \"18446744073709551615K\": it is more than 16T; write a number and K, M, G or T, such "
     "as 512M"},
    {"tmp=0M", "! size \"0M\": it is zero; write a number and K, M, G or T, such as 512M"},
    {"tmp=-1G",
     "! size \"-1G\": it has no whole number; write a number and K, M, G or T, such as 512M"},
    {"save=/x.sqsh", "save:/x.sqsh"},
    {"save=", "! it has no value"},
    {"entrypoint", "entrypoint"},
    {"no-entrypoint", "no-entrypoint"},
    {"entrypoint-log", "entrypoint-log"},
};

const Case kVariables[] = {
    {"PYXIS_CONTAINER_IMAGE=foo.sqsh", "image:/home/ann/foo.sqsh"},
    {"BELLOWS_CONTAINER_IMAGE=/a|PYXIS_CONTAINER_IMAGE=/b", "image:/a"},
    {"BELLOWS_CONTAINER_IMAGE=|PYXIS_CONTAINER_IMAGE=/b", ""},
    {"PYXIS_CONTAINER_IMAGE=/b|image=/c", "image:/c"},
    {"PYXIS_CONTAINER_IMAGE=docker://x", "image:docker://docker.io/library/x:latest"},
    {"PYXIS_CONTAINER_MOUNTS=/a:/b", "mount:/a:/b"},
    {"PYXIS_CONTAINER_MOUNTS=/a:/b|mounts=/c:/d|mounts=/e:/f", "mount:/c:/d,mount:/e:/f"},
    {"PYXIS_CONTAINER_WORKDIR=/w|BELLOWS_CONTAINER_NAME=box:exec", "workdir:/w,name:box:exec"},
    {"PYXIS_CONTAINER_MOUNT_HOME=1", "mount-home"},
    {"PYXIS_CONTAINER_MOUNT_HOME=No", "no-mount-home"},
    {"PYXIS_CONTAINER_MOUNT_HOME=no|mount-home", "mount-home"},
    {"PYXIS_CONTAINER_REMAP_ROOT=true|no-remap-root", "no-remap-root"},
    {"PYXIS_CONTAINER_REMAP_ROOT=maybe",
     "! PYXIS_CONTAINER_REMAP_ROOT: \"maybe\" is neither yes nor no"},
    {"PYXIS_CONTAINER_WRITABLE=0", "readonly"},
    {"PYXIS_CONTAINER_READONLY=0", "writable"},
    {"PYXIS_CONTAINER_WRITABLE=1|PYXIS_CONTAINER_READONLY=1", "writable"},
    {"BELLOWS_CONTAINER_READONLY=1|PYXIS_CONTAINER_WRITABLE=1", "readonly"},
    {"PYXIS_CONTAINER_ENV=A|env=B", "env:B"},
    {"BELLOWS_CONTAINER_UNSHARE=net|BELLOWS_CONTAINER_TMP=1G|BELLOWS_CONTAINER_VERBOSE=yes",
     "unshare:net,tmp:1024M,verbose"},
    {"BELLOWS_CONTAINER_VERBOSE=no", ""},
    {"PYXIS_CONTAINER_ENTRYPOINT_LOG=0", ""},
    {"PYXIS_CONTAINER_ENTRYPOINT_LOG=1", "entrypoint-log"},
    {"PYXIS_CONTAINER_ENTRYPOINT=0", "no-entrypoint"},
    {"PYXIS_CONTAINER_ENV=A|PYXIS_CONTAINER_UNSHARE=net", "env:A,unshare:net"},
    {"PYXIS_CONTAINER_ENTRYPOINT=1", "entrypoint"},
    {"PYXIS_CONTAINER_ENTRYPOINT=1|no-entrypoint", "no-entrypoint"},
    {"PYXIS_CONTAINER_SAVE=x.sqsh", "save:/home/ann/x.sqsh"},
    {"PYXIS_CONTAINER_SAVE=./x.sqsh|save=/y", "save:/y"},
};

}  // namespace

Test(container_options, images) { check(kImages, std::size(kImages)); }
Test(container_options, mounts) { check(kMounts, std::size(kMounts)); }
Test(container_options, others) { check(kOthers, std::size(kOthers)); }
Test(container_options, variables) { check(kVariables, std::size(kVariables)); }

Test(container_options, variables_that_the_command_line_beats) {
  Collector collector{{"/home/ann", nullptr}};
  cr_assert(collector.take(Option::workdir, "/w").ok());
  cr_assert(collector.take(Option::readonly, "").ok());
  const std::vector<std::string> beaten = collector.beaten_variables();
  const std::set<std::string> names(beaten.begin(), beaten.end());
  const std::set<std::string> wanted = {"BELLOWS_CONTAINER_WORKDIR",  "PYXIS_CONTAINER_WORKDIR",
                                        "BELLOWS_CONTAINER_WRITABLE", "PYXIS_CONTAINER_WRITABLE",
                                        "BELLOWS_CONTAINER_READONLY", "PYXIS_CONTAINER_READONLY"};
  cr_expect(names == wanted);
}

Test(container_options, are_in_the_order_of_their_numbers) {
  for (std::size_t i = 0; i < options().size(); ++i) {
    const OptionInfo& info = options()[i];
    cr_expect(static_cast<std::size_t>(info.option) == i);
    cr_expect(&info_of(info.option) == &info);
    const std::string name = info.name;
    cr_expect(std::string(name).erase(name.find("container-"), 10) == info.word, "%s", info.name);
  }
}

Test(container_options, have_bounds) {
  const std::string longest(kMostValue, 'x');
  cr_expect(told("image=/" + longest) == "! it is longer than 4096 bytes");
  cr_expect(told("name=" + std::string(65, 'n')) == "! the name is longer than 64 characters");
  std::string mounts = "mounts=";
  for (int i = 0; i < 65; ++i) mounts += "/" + std::to_string(i) + (i < 64 ? "," : "");
  cr_expect(told(mounts) == "! there are more than 64 mounts");
  cr_expect(told("image=/" + std::string(kMostText, 'x'))
                .starts_with("! all --container options together are longer than 2560 bytes"));
  cr_expect(told("workdir=/" + std::string(1500, 'x') + "|image=/" + std::string(1500, 'x'))
                .starts_with("! all --container options together are longer"));
}

Test(container_options, text_is_checked_again) {
  for (const char* bad : {"image:a",
                          "image:./a",
                          "image:/a/../b",
                          "image:/a/",
                          "image:",
                          "image",
                          "mount:./a:/b",
                          "mount:/a:/",
                          "mount:/a:/b:suid",
                          "mount:tmpfs",
                          "mount",
                          "mount:",
                          "name:",
                          "name:../x",
                          "env:A=1",
                          "env:",
                          "unshare:pid",
                          "tmp:1",
                          "tmp:-1M",
                          "writable:yes",
                          "verbose:",
                          "save:x",
                          "save:/x/",
                          "save:/x/../y",
                          "entrypoint:yes",
                          "other",
                          "",
                          ",",
                          "image:/a,,verbose",
                          "image:/a%2C%0",
                          "workdir:"}) {
    if (std::strlen(bad) == 0) continue;
    const auto spec = parse_spec(bad);
    // A percent sign that begins nothing is one of the path.
    if (std::string_view(bad) == "image:/a%2C%0") {
      cr_expect(spec.ok() && spec->image == "/a,%0");
      continue;
    }
    cr_expect(!spec.ok(), "\"%s\" was taken as %s", bad, spec.ok() ? spec_text(*spec).c_str() : "");
  }
  cr_expect(parse_spec("")->mounts.empty() && *parse_spec("") == Spec());
  cr_expect(!parse_spec("image:/a\x01"
                        "b")
                 .ok());
  cr_expect(!parse_spec(std::string(kMostText + 1, 'x')).ok());
}

Test(container_options, overlays_go_key_by_key) {
  const Spec job = *parse_spec(
      "image:/i,mount:/a,workdir:/w,name:n:exec,mount-home,remap-root,writable,env:A,unshare:net,"
      "tmp:5M");
  cr_expect(overlay(job, Spec()) == job);
  cr_expect(overlay(Spec(), job) == job);
  const Spec step = *parse_spec(
      "image:/j,mount:/b,workdir:/v,name:m,no-mount-home,no-remap-root,readonly,env:B,unshare:uts,"
      "tmp:6M,verbose");
  cr_expect(overlay(job, step) == step);
  cr_expect(spec_text(overlay(job, *parse_spec("mount:/b,unshare:ipc"))) ==
            "image:/i,mount:/b,workdir:/w,name:n:exec,mount-home,remap-root,writable,env:A,"
            "unshare:ipc,tmp:5M");
}

namespace {

struct RightsCase {
  const char* contract;  ///< without "bellows/1 tenant=t gpus=0"; null: the job has none
  const char* step;
  const char* text;
};

const RightsCase kRights[] = {
    {nullptr, "", ""},
    {nullptr, "image:/", ""},
    {nullptr, "image:/,verbose",
     "! a step of this job cannot have --container options, since the job was submitted without "
     "any and slurmctld granted it none, as for a tenant that may bring no images, or where "
     "PrologFlags in slurm.conf has no Contain; submit it with --container-image or --framework, "
     "and srun inside it may then have its own"},
    {nullptr, "image:/i",
     "! a step of this job cannot have --container options, since the job was submitted without "
     "any and slurmctld granted it none, as for a tenant that may bring no images, or where "
     "PrologFlags in slurm.conf has no Contain; submit it with --container-image or --framework, "
     "and srun inside it may then have its own"},
    {nullptr, "verbose",
     "! a step of this job cannot have --container options, since the job was submitted without "
     "any and slurmctld granted it none, as for a tenant that may bring no images, or where "
     "PrologFlags in slurm.conf has no Contain; submit it with --container-image or --framework, "
     "and srun inside it may then have its own"},
    {"", "", ""},
    {"plain=yes images=/own/%2A", "", ""},
    {"plain=yes images=/own/%2A", "image:/own/a,name:n", "image:/own/a,name:n"},
    {"plain=yes images=/own/%2A", "image:/etc",
     "! this job may not use image /etc; its contract allows /own/*"},
    {"image=/i", "", "image:/i"},
    {"image=/i", "image:/i,verbose", "image:/i,verbose"},
    {"image=/i container=mount:/a:/b:ro,writable", "readonly", "image:/i,mount:/a:/b:ro,readonly"},
    {"image=/i", "image:/j", "! this job may not use image /j; its contract allows /i"},
    {"image=/i images=/own/%2A", "image:/own/a/b.sqsh", "image:/own/a/b.sqsh"},
    {"image=/i images=/own/%2A,/two", "image:/owner/a",
     "! this job may not use image /owner/a; its contract allows /i, /own/*, /two"},
    {"images=/own/%2A", "image:/own/a", "image:/own/a"},
    {"", "image:/own/a",
     "! this job may not use image /own/a; its contract allows none, so submit the job with "
     "--framework or with --container-image"},
    {"image=/i mounts=/data:/data:ro,/a%252Cb:/c env=X,Y", "",
     "image:/i,mount:/data:/data:ro,"
     "mount:/a%2Cb:/c,env:X+Y"},
    {"image=/i mounts=/data:/data:ro env=X container=mount:/u,env:U", "mount:/s,env:X+S",
     "image:/i,mount:/data:/data:ro,mount:/s,env:X+S"},
    {"image=/i container=name:n", "workdir:/w", "image:/i,workdir:/w,name:n"},
    {"image=/i container=name:n", "image:/i", "image:/i,name:n"},
    {"image=/i images=/j container=name:n:exec", "image:/j", "image:/j"},
    {"image=/i images=/j container=name:n", "image:/j,name:o:exec", "image:/j,name:o:exec"},
    {"image=/i container=name:n:create", "", "image:/i,name:n"},
    {"image=/i container=name:n:create", "name:n:create", "image:/i,name:n:create"},
    {"image=/i container=name:n:exec", "", "image:/i,name:n:exec"},
    // What the contract's options say of an image does not count: it has a key of its own.
    {"container=image:/forged", "", ""},
    {"image=/i container=mystery", "",
     "! the key container of the job's contract cannot be used: \"mystery\" is not an option of a "
     "container; tell the administrator"},
    {"image=i", "",
     "! the key image of the job's contract cannot be used: \"i\" is not an absolute path without "
     "\"..\"; tell the administrator"},
    {"image=/i mounts=data", "",
     "! the key mounts of the job's contract cannot be used: mount \"data\": the source must be an "
     "absolute path, one that begins with \"./\" or \"../\", tmpfs or umount; tell the "
     "administrator"},
};

}  // namespace

Test(container_options, steps_get_what_the_contract_allows) {
  for (const RightsCase& one : kRights) {
    std::optional<Contract> contract;
    if (one.contract) {
      const std::string line = std::string("bellows/1 tenant=t gpus=0 ") + one.contract;
      auto parsed = Contract::parse(line);
      cr_assert(parsed.ok(), "%s", line.c_str());
      contract = *parsed;
    }
    const auto spec = effective_spec(contract ? &*contract : nullptr, *parse_spec(one.step));
    const std::string got = spec.ok() ? spec_text(*spec) : "! " + spec.error().text;
    cr_expect(got == one.text, "\n    contract: %s\n    step: %s\n    got: %s\n    not: %s",
              one.contract ? one.contract : "none", one.step, got.c_str(), one.text);
  }
}

Test(container_options, patterns_are_for_clean_paths) {
  const std::vector<std::string> patterns = {"/own/*"};
  cr_expect(permits_image(patterns, "/own/a"));
  for (const char* path : {"/own/../etc/a", "/own//a", "/own/./a", "/own/a/", "own/a", "", "/own/"})
    cr_expect(!permits_image(patterns, path), "\"%s\"", path);
  cr_expect(!permits_image({}, "/own/a"));
}

Test(container_options, patterns_of_registries) {
  const std::vector<std::string> patterns = {"docker://h.org/team/*", "*", "/own/*"};
  cr_expect(permits_image(patterns, "docker://h.org/team/x:1"));
  cr_expect(permits_image(patterns, "docker://bob@h.org/team/a/b:1"));
  for (const char* image :
       {"docker://h.org/other/x:1", "docker://h.org.evil.org/team/x:1", "docker://team/x",
        "docker://docker.io/library/x:1", "docker://h.org/team/../other/x:1",
        "docker://h.org/team/x@y", "docker://docker://h.org/team/x"})
    cr_expect(!permits_image(patterns, image), "\"%s\"", image);
}
