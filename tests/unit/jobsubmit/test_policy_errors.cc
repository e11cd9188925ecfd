// SPDX-License-Identifier: Apache-2.0
/// Every rule of bellows.yaml that a file can break, and what is said of it.

#include <criterion/criterion.h>

#include <string>

#include "jobsubmit/policy/policy.h"

using namespace bellows;

namespace {

struct Case {
  const char* text;   ///< after a first line `version: 1`
  const char* error;  ///< after the file's name
};

void expect(const Case* begin, const Case* end) {
  for (const Case* one = begin; one != end; ++one) {
    const std::string text = std::string("version: 1\n") + one->text;
    const auto policy = load_policy(text, "b.yaml");
    cr_expect(not policy.ok(), "accepted: %s", one->text);
    if (policy.ok()) continue;
    const std::string wanted = std::string("b.yaml:") + one->error;
    cr_expect_str_eq(policy.error().text.c_str(), wanted.c_str());
  }
}

template <std::size_t count>
void expect(const Case (&cases)[count]) {
  expect(cases, cases + count);
}

#define NAME_RULE                                                                  \
  " must be 1 to 64 letters, digits, \"_\", \".\", \"+\" or \"-\", and not begin " \
  "with one of the last three"
#define TIME_RULE                                                                   \
  " must be a time of at most 10 years, in minutes or as Slurm spells it, such as " \
  "4:00:00 or 2-12"

}  // namespace

Test(policy_errors, version, .timeout = 10) {
  const auto expect_error = [](const char* text, const char* wanted) {
    const auto policy = load_policy(text, "b.yaml");
    cr_assert(not policy.ok());
    cr_expect_str_eq(policy.error().text.c_str(), wanted);
  };
  expect_error("", "b.yaml:1:1: the key \"version\" is missing; write version: 1");
  expect_error("version: 2\n", "b.yaml:1:10: only version 1 is known; write version: 1");
  expect_error("- 1\n", "b.yaml:1:1: the policy must be a mapping of key: value");
}

Test(policy_errors, keys, .timeout = 10) {
  static const Case kCases[] = {
      {"tenant:\n", "2:1: unknown key \"tenant\" in the policy; did you mean \"tenants\"?"},
      {"zzzzzzzz: 1\n",
       "2:1: unknown key \"zzzzzzzz\" in the policy; known are version, enabled, checkpoint_dir, "
       "checkpoint_access, resize_site_factor, plain_jobs, lua, controller, frameworks, defaults, "
       "tenants, "
       "default_tenant, models"},
      {"enabled: true\nenabled: true\n", "3:1: key \"enabled\" appears twice"},
      {"lua: {scrip: a}\n", "2:7: unknown key \"scrip\" in lua; did you mean \"script\"?"},
      {"plain_jobs: {defaults: pass}\n",
       "2:14: unknown key \"defaults\" in plain_jobs; did you mean \"default\"?"},
      {"frameworks: {f: {version: [a]}}\n",
       "2:18: unknown key \"version\" in framework f; did you mean \"versions\"?"},
      {"frameworks: {f: {versions: {\"1\": {status: removed}}}}\n",
       "2:35: unknown key \"status\" in version 1; did you mean \"state\"?"},
      {"defaults: {gpu: {}}\n", "2:12: unknown key \"gpu\" in defaults; did you mean \"gpus\"?"},
      {"defaults: {accounts: [a]}\n",
       "2:12: unknown key \"accounts\" in defaults; known are children, users, groups, partitions, "
       "suspended, frameworks, framework_limits, images, batch_range, pools, gpus, sizing, "
       "guarantee, weight"},
      {"tenants: {a: {gpus: {mx: 4}}}\n",
       "2:22: unknown key \"mx\" in gpus; did you mean \"max\"?"},
      {"tenants: {a: {user: [b]}}\n",
       "2:15: unknown key \"user\" in tenant a; did you mean \"users\"?"},
      {"tenants: {a: {sizing: {pergpu: {}}}}\n",
       "2:24: unknown key \"pergpu\" in sizing; did you mean \"per_gpu\"?"},
      {"tenants: {a: {sizing: {per_gpu: {cpu: 4}}}}\n",
       "2:34: unknown key \"cpu\" in per_gpu; did you mean \"cpus\"?"},
      {"tenants: {a: {sizing: {per_gpu: {a100: {mem: 4G}}}}}\n",
       "2:41: unknown key \"mem\" in per_gpu for a100; known are cpus, memory, snapshot"},
      {"tenants: {a: {sizing: {time: {min: 4}}}}\n",
       "2:31: unknown key \"min\" in time; known are default, max"},
      {"frameworks: {f: }\ntenants: {a: {framework_limits: {f: {gpu: {}}}}}\n",
       "3:38: unknown key \"gpu\" in framework_limits for f; did you mean \"gpus\"?"},
  };
  expect(kCases);
}

Test(policy_errors, kinds, .timeout = 10) {
  static const Case kCases[] = {
      {"enabled: yes\n", "2:10: enabled must be false or true"},
      {"enabled: [true]\n", "2:10: enabled must be false or true"},
      {"plain_jobs: deny\n", "2:13: plain_jobs must be pass or refuse"},
      {"plain_jobs: {default: deny}\n", "2:23: default must be pass or refuse"},
      {"plain_jobs: {partitions: {gpu: no}}\n", "2:32: gpu must be pass or refuse"},
      {"plain_jobs: {partitions: [gpu]}\n", "2:26: partitions must be a mapping of key: value"},
      {"plain_jobs: {partitions: {\"gpu*\": pass}}\n", "2:27: a partition's name" NAME_RULE},
      {"lua: a.lua\n", "2:6: lua must be a mapping of key: value"},
      {"lua: {script: \"\"}\n", "2:15: script is empty"},
      {"lua: {on_error: warn}\n", "2:17: on_error must be pass or refuse"},
      {"lua: {instructions: 10}\n",
       "2:21: instructions must be a whole number from 1000 to 10000000"},
      {"lua: {memory: 17M}\n", "2:15: memory must be a size from 1M to 16M, such as 2M"},
      {"lua: {memory: 1024}\n", "2:15: memory must be a size from 1M to 16M, such as 2M"},
      {"resize_site_factor: -1\n",
       "2:21: resize_site_factor must be a whole number from 0 to 1000000000"},
      {"frameworks: [f]\n", "2:13: frameworks must be a mapping of key: value"},
      {"frameworks: {-f: }\n", "2:14: a framework's name" NAME_RULE},
      {"tenants: [a]\n", "2:10: tenants must be a mapping of key: value"},
      {"tenants: {\"a b\": }\n", "2:11: a tenant's name" NAME_RULE},
      {"tenants: {a: b}\n", "2:14: tenant a must be a mapping of key: value"},
      {"defaults: 1\n", "2:11: defaults must be a mapping of key: value"},
      {"default_tenant: c\ntenants: {a: , b: }\n",
       "2:17: default_tenant \"c\" is not one of the tenants a, b"},
  };
  expect(kCases);
}

Test(policy_errors, checkpoint_dir, .timeout = 10) {
  static const Case kCases[] = {
      {"checkpoint_dir: ckpt/%j\n", "2:17: checkpoint_dir must be an absolute path"},
      {"checkpoint_dir: /ckpt/%u\n",
       "2:17: checkpoint_dir must contain %j, or jobs would overwrite each other's checkpoints"},
      {"checkpoint_dir: /ckpt/%x\n",
       "2:17: path \"/ckpt/%x\": only %u, %a, %j and %% may follow %"},
      {"checkpoint_access: everybody\n", "2:20: checkpoint_access must be private, group or all"},
      {"checkpoint_dir: \"/a\\nb/%j\"\n", "2:17: checkpoint_dir has a control character"},
  };
  expect(kCases);
  const std::string path(1030, 'a');
  const auto policy = load_policy("version: 1\ncheckpoint_dir: /%j/" + path, "b.yaml");
  cr_assert(not policy.ok());
  cr_expect_str_eq(policy.error().text.c_str(),
                   "b.yaml:2:17: checkpoint_dir is longer than 1024 bytes");
}

Test(policy_errors, frameworks, .timeout = 10) {
  static const Case kCases[] = {
      {"frameworks: {f: {versions: 1}}\n",
       "2:28: versions must be a list; write versions: [\"1\"]"},
      {"frameworks: {f: {versions: [\"1\", \"1\"]}}\n", "2:34: version 1 appears twice"},
      {"frameworks: {f: {versions: [\"a/b\"]}}\n", "2:29: a version" NAME_RULE},
      {"frameworks: {f: {versions: {\"a b\": }}}\n", "2:29: a version" NAME_RULE},
      {"frameworks: {f: {versions: {\"1\": , \"1\": }}}\n", "2:36: key \"1\" appears twice"},
      {"frameworks: {f: {versions: [\"1\"], default: \"2\"}}\n",
       "2:44: the default version 2 is not in versions"},
      {"frameworks: {f: {default: \"2\"}}\n", "2:27: the default version 2 is not in versions"},
      {"frameworks: {f: {versions: {\"1\": {state: removed}, \"2\": }, default: \"1\"}}\n",
       "2:69: the default version 1 is removed"},
      {"frameworks: {f: {versions: {\"1\": {state: removed}}}}\n",
       "2:28: all versions are removed; keep one, or remove the framework"},
      {"frameworks: {f: {versions: {\"1\": {state: old}}}}\n",
       "2:42: state must be supported, deprecated or removed"},
      {"frameworks: {f: {versions: {\"1\": {hint: \"use 2\"}}}}\n",
       "2:41: a hint goes with state: deprecated or state: removed"},
      {"frameworks: {f: {image: pytorch.sqsh}}\n", "2:25: image must be an absolute path"},
      {"frameworks: {f: {image: \"\"}}\n", "2:25: image is empty"},
      {"frameworks: {f: {env: {SLURM_NTASKS: 1}}}\n",
       "2:24: SLURM_NTASKS may not be set here: SLURM_* belongs to Slurm"},
      {"frameworks: {f: {env: {BELLOWS_TENANT: x}}}\n",
       "2:24: BELLOWS_TENANT may not be set here: BELLOWS_* belongs to Bellows"},
      {"frameworks: {f: {env: {\"A B\": 1}}}\n",
       "2:24: \"A B\" is not the name of an environment variable"},
      {"frameworks: {f: {env: {A: [1]}}}\n", "2:27: A must be a text"},
      {"frameworks: {f: {mounts: /data}}\n", "2:26: mounts must be a list, such as [a, b]"},
      {"frameworks: {f: {mounts: [/data]}}\n",
       "2:27: mount \"/data\" must be SOURCE:TARGET or SOURCE:TARGET:ro, with absolute paths"},
      {"frameworks: {f: {mounts: [\"/a:b\"]}}\n",
       "2:27: mount \"/a:b\" must be SOURCE:TARGET or SOURCE:TARGET:ro, with absolute paths"},
      {"frameworks: {f: {mounts: [\"/a:/b\", \"/a:/b:rx\"]}}\n",
       "2:36: mount \"/a:/b:rx\" must be SOURCE:TARGET or SOURCE:TARGET:ro, with absolute paths"},
      {"frameworks: {f: {launch: [slurm]}}\n",
       "2:27: a launch kind must be mpi, nccl, torch, plain or ps"},
      {"frameworks: {f: {launch: [mpi, mpi]}}\n", "2:32: launch kind mpi appears twice"},
      {"frameworks: {f: {launch: []}}\n",
       "2:26: launch is empty; leave it out to allow all of them"},
      {"frameworks: {f: {prefix: \"a\\tb\"}}\n", "2:26: prefix has a control character"},
  };
  expect(kCases);
}

Test(policy_errors, tenants, .timeout = 10) {
  static const Case kCases[] = {
      {"tenants: {a: {accounts: [x]}, b: {accounts: [X]}}\n",
       "2:46: account x already belongs to tenant a, which is not narrowed by users, groups or "
       "partitions"},
      {"tenants: {a: {accounts: [b], users: [u]}, b: , c: {accounts: [b]}}\n",
       "2:63: account b already belongs to tenant b, which is not narrowed by users, groups or "
       "partitions"},
      {"tenants: {a: {accounts: [x, X]}}\n", "2:29: account x appears twice"},
      {"tenants: {a: {accounts: }}\n", "2:25: accounts must be a list, such as [a, b]"},
      {"tenants: {a: {accounts: [\"x y\"]}}\n", "2:26: an account" NAME_RULE},
      {"tenants: {a: {children: 1}}\n", "2:25: children must be false or true"},
      {"tenants: {a: {users: []}}\n", "2:22: users is empty; leave it out to allow all of them"},
      {"tenants: {a: {users: }}\n", "2:22: users must be a list, such as [a, b]"},
      {"tenants: {a: {groups: [\"\"]}}\n", "2:24: a group is empty"},
      {"tenants: {a: {groups: [g, g]}}\n", "2:27: \"g\" appears twice"},
      {"tenants: {a: {partitions: [[p]]}}\n", "2:28: a partition pattern must be a text"},
      {"tenants: {a: {suspended: yes}}\n",
       "2:26: suspended must be the reason that users see, not yes; write, for example, suspended: "
       "\"over budget until May\", and leave it empty for a tenant that is not suspended"},
      {"defaults: {suspended: False}\n",
       "2:23: suspended must be the reason that users see, not False; write, for example, "
       "suspended: "
       "\"over budget until May\", and leave it empty for a tenant that is not suspended"},
      {"tenants: {a: {suspended: \"\"}}\n", "2:26: the reason for suspended is empty"},
      {"tenants: {a: {suspended: [x]}}\n", "2:26: the reason for suspended must be a text"},
      {"tenants: {a: {images: /i/*}}\n", "2:23: images must be a list, such as [a, b]"},
      {"tenants: {a: {images: [/i, own/*]}}\n",
       "2:28: image pattern \"own/*\" must begin with \"/\" or \"*\", since it is for absolute "
       "paths, "
       "or with \"docker://\" for images in registries"},
      {"defaults: {images: [/i/../*]}\n",
       "2:21: image pattern \"/i/../*\" matches nothing: no image's path has \"..\""},
      {"frameworks: {f: {mounts: [\"/a:/b/..\"]}}\n",
       "2:27: mount \"/a:/b/..\": the target is the container's root, which is the image's place"},
      {"tenants: {a: {batch_range: off}}\n", "2:28: batch_range must be false or true"},
      {"tenants: {a: {pools: }}\n", "2:22: pools must be a mapping of key: value"},
      {"tenants: {a: {pools: {member: 1}}}\n",
       "2:23: unknown key \"member\" in pools; did you mean \"members\"?"},
      {"tenants: {a: {pools: {members: 10001}}}\n",
       "2:32: members must be a whole number from 0 to 10000"},
      {"frameworks: {digits: }\ntenants: {a: {frameworks: [digts]}}\n",
       "3:28: \"digts\" does not match any framework of this file; did you mean \"digits\"?"},
      {"frameworks: {f: {versions: [\"1\"]}}\ntenants: {a: {frameworks: [\"f:2*\"]}}\n",
       "3:28: \"f:2*\" does not match any framework of this file"},
      {"frameworks: {f: }\ndefaults: {frameworks: [g]}\n",
       "3:25: \"g\" does not match any framework of this file"},
      {"frameworks: {f: }\ntenants: {a: {framework_limits: {g: {gpus: {}}}}}\n",
       "3:34: \"g\" does not match any framework of this file"},
      {"tenants: {a: {framework_limits: [f]}}\n",
       "2:33: framework_limits must be a mapping of key: value"},
      {"frameworks: {f: }\ntenants: {a: {framework_limits: {f: 4}}}\n",
       "3:37: framework_limits for f must be a mapping of key: value"},
  };
  expect(kCases);
}

Test(policy_errors, gpus, .timeout = 10) {
  static const Case kCases[] = {
      {"tenants: {a: {gpus: {max: many}}}\n", "2:27: max must be a whole number from 1 to 4096"},
      {"tenants: {a: {gpus: {max: 5000}}}\n", "2:27: max must be a whole number from 1 to 4096"},
      {"tenants: {a: {gpus: {min: 4, max: 2}}}\n", "2:35: max 2 is smaller than min 4"},
      {"defaults: {gpus: {max: 2}}\ntenants: {a: {gpus: {min: 4}}}\n",
       "3:27: max 2 is smaller than min 4"},
      {"tenants: {a: {gpus: {min: 2, max: 8, step: 2, start: 3}}}\n",
       "2:54: start 3 is not one of the sizes 2-8:2"},
      {"defaults: {gpus: {start: 3, step: 4}}\n", "2:26: start 3 is not one of the sizes 1-4093:4"},
      {"tenants: {a: {gpus: {step: 0}}}\n", "2:28: step must be a whole number from 1 to 4096"},
      {"tenants: {a: {gpus: {step: 2, sizes: [1]}}}\n",
       "2:38: step and sizes exclude each other; give one of them"},
      {"tenants: {a: {gpus: {sizes: all}}}\n",
       "2:29: sizes, if not a list, must be powers_of_two or whole_nodes"},
      {"tenants: {a: {gpus: {sizes: whole_nodes}}}\n",
       "2:29: sizes: whole_nodes needs gpus_per_node"},
      {"tenants: {a: {gpus: {sizes: [1, x]}}}\n",
       "2:33: a size must be a whole number from 1 to 4096"},
      {"tenants: {a: {gpus: {sizes: [1, 4, 2]}}}\n", "2:36: the sizes in a list must ascend"},
      {"tenants: {a: {gpus: {sizes: []}}}\n", "2:29: no size is from min 1 to max 4096"},
      {"tenants: {a: {gpus: {sizes: [8], max: 4}}}\n", "2:29: no size is from min 1 to max 4"},
      {"tenants: {a: {gpus: {gpus_per_node: 0}}}\n",
       "2:37: gpus_per_node must be a whole number from 1 to 4096"},
      {"tenants: {a: {gpus: {range: 4-2}}}\n",
       "2:29: GPU range \"4-2\": 4 is larger than 2; write N, MIN-MAX, MIN-MAX:STEP or a list such "
       "as 1,2,4,8"},
      {"tenants: {a: {gpus: {max: 4, range: 2-8}}}\n",
       "2:37: range 2-8 includes 5, which is not one of the sizes 1-4"},
      {"tenants: {a: {gpus: {types: []}}}\n",
       "2:29: types is empty; leave it out to allow all of them"},
      {"tenants: {a: {gpus: {types: [\"a:b\"]}}}\n", "2:30: a GPU type" NAME_RULE},
      {"tenants: {a: {gpus: {max_nodes: 0}}}\n",
       "2:33: max_nodes must be a whole number from 1 to 65536"},
      {"tenants: {a: {gpus: {shrink_below_start: maybe}}}\n",
       "2:42: shrink_below_start must be false or true"},
      {"frameworks: {f: }\ntenants: {a: {gpus: {max: 4}, framework_limits: {f: {gpus: {min: "
       "8}}}}}\n",
       "3:66: max 4 is smaller than min 8"},
  };
  expect(kCases);
}

Test(policy_errors, controller, .timeout = 10) {
  static const Case kCases[] = {
      {"controller: {uid: 7}\n",
       "2:13: controller needs addresses, a list of HOST:PORT where bellowsd listens"},
      {"controller: {addresses: []}\n",
       "2:25: addresses is empty; leave it out to allow all of them"},
      {"controller: {addresses: [ctl]}\n",
       "2:26: \"ctl\" is not HOST:PORT with a port from 1 to 65535"},
      {"controller: {addresses: [\"c:1\"], uid: 0}\n",
       "2:39: uid must be a whole number from 1 to 4294967293"},
      {"controller: {addresses: [\"c:1\"], objective: best}\n",
       "2:45: objective must be fair, goodput or throughput"},
      {"controller: {addresses: [\"c:1\"], make_room: soon}\n",
       "2:45: make_room must be a whole number from 0 to 604800"},
      {"controller: {addresses: [\"c:1\"], restarts_per_hour: 0}\n",
       "2:53: restarts_per_hour must be a whole number from 1 to 3600"},
      {"tenants: {a: {gpus: {elastic: yes}}}\n", "2:31: elastic must be off, manual or auto"},
      {"tenants: {a: {weight: 0}}\n", "2:23: weight must be a whole number from 1 to 1000000"},
  };
  expect(kCases);
}

Test(policy_errors, quota, .timeout = 10) {
  static const Case kCases[] = {
      {"defaults: {quota: {gpus: 1}}\n",
       "2:12: unknown key \"quota\" in defaults; known are children, users, groups, partitions, "
       "suspended, frameworks, framework_limits, images, batch_range, pools, gpus, sizing, "
       "guarantee, weight"},
      {"tenants: {a: {quota: 8}}\n", "2:22: quota must be a mapping of key: value"},
      {"tenants: {a: {quota: {gpu: 8}}}\n",
       "2:23: unknown key \"gpu\" in quota; did you mean \"gpus\"?"},
      {"tenants: {a: {quota: {parent: p}}}\n",
       "2:22: quota needs gpus, the number of GPUs that all jobs of the tenant may hold"},
      {"tenants: {a: {quota: {gpus: 1000001}}}\n",
       "2:29: gpus must be a whole number from 0 to 1000000"},
      {"tenants: {a: {quota: {gpus: 1, parent: \"p q\"}}}\n", "2:40: parent" NAME_RULE},
      {"tenants: {a: {quota: {gpus: 1, parent: Root}}}\n",
       "2:40: parent root is above every account; name an account for this tenant alone"},
      {"tenants: {a: {quota: {gpus: 1, parent: A}}}\n",
       "2:40: parent a is one of the tenant's own accounts"},
      {"tenants: {a: {accounts: [], quota: {gpus: 1}}}\n",
       "2:36: quota needs accounts: Slurm counts GPUs by account"},
      {"tenants: {a: {accounts: [x, y, z], quota: {gpus: 1}}}\n",
       "2:43: quota needs parent: Slurm counts the jobs of the 3 accounts together only in an "
       "account above them"},
      {"tenants: {a: {accounts: [x], users: [u], quota: {gpus: 1}}, x: {quota: {gpus: 2}}}\n",
       "2:72: account x is already in the quota of tenant a"},
      {"tenants: {a: {quota: {gpus: 1, parent: p}}, b: {quota: {gpus: 1, parent: P}}}\n",
       "2:56: account p is already in the quota of tenant a"},
      {"tenants: {a: {quota: {gpus: 1, parent: b}}, b: {quota: {gpus: 1}}}\n",
       "2:56: account b is already in the quota of tenant a"},
  };
  expect(kCases);
}

Test(policy_errors, sizing, .timeout = 10) {
  static const Case kCases[] = {
      {"tenants: {a: {sizing: {per_gpu: 4}}}\n", "2:33: per_gpu must be a mapping of key: value"},
      {"tenants: {a: {sizing: {per_gpu: {cpus: 0}}}}\n",
       "2:40: cpus must be a whole number from 1 to 4096"},
      {"tenants: {a: {sizing: {per_gpu: {memory: 16}}}}\n",
       "2:42: memory must be a size from 1M to 1048576G, such as 512M or 1G"},
      {"tenants: {a: {sizing: {per_gpu: {memory: 16GB}}}}\n",
       "2:42: memory must be a size from 1M to 1048576G, such as 512M or 1G"},
      {"tenants: {a: {sizing: {per_gpu: {snapshot: 0M}}}}\n",
       "2:44: snapshot must be a size from 1M to 1048576G, such as 512M or 1G"},
      {"tenants: {a: {sizing: {per_gpu: {snapshot: 1025T}}}}\n",
       "2:44: snapshot must be a size from 1M to 1048576G, such as 512M or 1G"},
      {"tenants: {a: {sizing: {per_gpu: {\"a b\": {cpus: 1}}}}}\n", "2:34: a GPU type" NAME_RULE},
      {"tenants: {a: {sizing: {per_gpu: {a100: {cpus: 1}, cpus: 2}}}}\n",
       "2:57: per_gpu for cpus must be a mapping of key: value"},
      {"tenants: {a: {sizing: {time: 60}}}\n", "2:30: time must be a mapping of key: value"},
      {"tenants: {a: {sizing: {time: {default: 0}}}}\n", "2:40: default" TIME_RULE},
      {"tenants: {a: {sizing: {time: {max: 1h}}}}\n", "2:36: max" TIME_RULE},
      {"tenants: {a: {sizing: {time: {max: 1:2:3:4}}}}\n", "2:36: max" TIME_RULE},
      {"tenants: {a: {sizing: {time: {max: 1-}}}}\n", "2:36: max" TIME_RULE},
      {"tenants: {a: {sizing: {time: {max: -5}}}}\n", "2:36: max" TIME_RULE},
      {"tenants: {a: {sizing: {time: {max: 5270401}}}}\n", "2:36: max" TIME_RULE},
      {"tenants: {a: {sizing: {time: {max: 18446744073709551615-0}}}}\n", "2:36: max" TIME_RULE},
      {"tenants: {a: {sizing: {time: {default: 2-0, max: 4:00:00}}}}\n",
       "2:50: max 4:00:00 is shorter than default 2-0"},
      {"tenants: {a: {sizing: {signal_lead: 70000}}}\n",
       "2:37: signal_lead must be a whole number from 0 to 65535"},
      {"tenants: {a: {sizing: {placement: dense}}}\n",
       "2:35: placement must be any, pack or spread"},
      {"tenants: {a: {sizing: {partition: \"a,b\"}}}\n", "2:35: partition" NAME_RULE},
      {"tenants: {a: {sizing: {partition: cpu, partitions: [\"gpu*\"]}}}\n",
       "2:35: partition cpu does not match any of partitions"},
      {"defaults: {sizing: {partition: cpu}}\ntenants: {a: {sizing: {partitions: [\"gpu*\"]}}}\n",
       "3:36: partition cpu does not match any of partitions"},
      {"tenants: {a: {sizing: {qos: low, qos_allowed: [high]}}}\n",
       "2:29: qos low does not match any of qos_allowed"},
      {"tenants: {a: {sizing: {qos_allowed: []}}}\n",
       "2:37: qos_allowed is empty; leave it out to allow all of them"},
      {"tenants: {a: {sizing: {site_factor: x}}}\n",
       "2:37: site_factor must be a whole number from 0 to 1000000000"},
  };
  expect(kCases);
}

Test(policy_errors, slips_in_words, .timeout = 10) {
  static const Case kCases[] = {
      {"tenants:\n\tvision: {}\n",
       "3:1: the line is indented with a tab, which YAML does not allow; use spaces"},
      {"tenants:\n  vision:\n  \taccounts: [a]\n",
       "4:3: the line is indented with a tab, which YAML does not allow; use spaces"},
      {"tenants:\n- b\n-\tc: d\n", "4:2: a tab is not allowed here; use spaces"},
      {"frameworks: {f: {versions: 2.1}}\n",
       "2:28: versions must be a list; write versions: [\"2.1\"]"},
      {"frameworks: {f: 2.1}\n",
       "2:17: framework f must be a mapping; write f: {versions: [\"2.1\"]}"},
      {"frameworks: {f: {versions: [\"2.1\"]}}\ntenants: {a: {frameworks: [f: 2.1]}}\n",
       "3:28: a framework pattern has no space after its colon; write \"f:2.1\""},
      {"tenants: {a: {frameworks: [*]}}\n",
       "2:29: a value that begins with * or & must be quoted, such as \"*\""},
      {"checkpoint_dir: %u/%j\n", "2:17: a value that begins with this character must be quoted"},
      {"tenants:\n  a:\n    suspended: over: budget\n",
       "4:20: there is a second \": \" in the line; a value with one must be quoted"},
      {"tenants:\n  a:\n   gpus: {max: 2}\n    accounts: [a]\n",
       "5:5: did not find expected key while parsing a block mapping, which begins in line 4"},
      {"default_tenant: \"a\n",
       "3:1: found unexpected end of stream while scanning a quoted scalar, which begins in line "
       "2"},
  };
  expect(kCases);
}

Test(policy_errors, models, .timeout = 10) {
  static const Case kCases[] = {
      {"frameworks: {f: {models: [m]}}\n",
       "2:13: framework f names the model m, which is not one of models"},
      {"frameworks: {f: {models: [../m]}}\n", "2:27: no model can have the name \"../m\""},
      {"frameworks: {f: {models: [m, m]}}\n", "2:30: \"m\" appears twice"},
      {"frameworks: {f: {models: m}}\n", "2:26: models must be a list, such as [a, b]"},
      {"models: {m: /m}\n", "2:9: models must be a list, such as [a, b]"},
      {"models: [m]\n", "2:10: a model must be a mapping of key: value"},
      {"models: [{name: m, path: /m}]\n",
       "2:20: unknown key \"path\" in a model; known are name, tenant, source, visible, user, uid"},
      {"models: [{name: m, tenant: a}]\n", "2:10: a model needs a source"},
      {"tenants: {a: }\nmodels: [{name: .m, tenant: a, source: /m}]\n",
       "3:17: a model's name must be words of letters, digits, \"_\", \"-\" and \".\" with \"/\" "
       "between them, none with \".\" first, and have at most 255 characters"},
      {"tenants: {a: , b: }\nmodels: [{name: m, tenant: c, source: /m}]\n",
       "3:28: tenant \"c\" is not one of the tenants a, b"},
      {"tenants: {a+b: }\nmodels: [{name: m, tenant: a+b, source: /m}]\n",
       "3:28: tenant a+b cannot have models: for those its name must have at most 63 characters "
       "and "
       "no \"+\""},
      {"tenants: {a: }\nmodels: [{name: m, tenant: a, source: m}]\n",
       "3:39: source must be an absolute path, or a URL of http://, https:// or s3://"},
      {"tenants: {a: }\nmodels: [{name: m, tenant: a, source: /m, visible: [b]}]\n",
       "3:53: visible \"b\" is not one of the tenants a"},
      {"tenants: {a: }\nmodels: [{name: m, tenant: a, source: /m, visible: [\"*\", a]}]\n",
       "3:52: visible is \"*\" for all tenants, or names some of them, not both"},
      {"tenants: {a: }\nmodels: [{name: m, tenant: a, source: /m, uid: 0}]\n",
       "3:48: uid must be a whole number from 1 to 4294967293"},
      {"tenants: {a: }\nmodels: [{name: m, tenant: a, source: /m, user: u, uid: 7}]\n",
       "3:57: a model has a user or a uid, not both"},
      {"tenants: {a: }\nmodels:\n- {name: m, tenant: a, source: /m}\n"
       "- {name: m, tenant: a, source: /n}\n",
       "5:3: tenant a has model m twice"},
      {"tenants: {a: , b: , c: }\nmodels:\n- {name: m, tenant: a, source: /m, visible: [c]}\n"
       "- {name: m, tenant: b, source: /n, visible: [\"*\"]}\n",
       "5:3: tenant c would see two models m: those of a and b"},
  };
  expect(kCases);
}
