# SPDX-License-Identifier: Apache-2.0
# Compiles fuzz targets with clang for libFuzzer, AddressSanitizer and UBSan, below the current
# directory: make -f TOP/tests/fuzz/libfuzzer.mk TOP=TOP. A new target is added to TARGETS, with a
# line that names the sources it needs besides its own.

# What slurmctld and root read.
TARGETS = fuzz_contract fuzz_environment fuzz_job_desc fuzz_lasting_origin fuzz_ld_cache fuzz_mounts
# To compile all takes eight minutes of a processor, for three seconds of each; driver.cc runs them always.
ifneq ($(LONG),)
TARGETS += fuzz_batch_record fuzz_catalogue fuzz_checkpoint_model fuzz_controller_messages fuzz_csv fuzz_events \
	fuzz_image_manifest fuzz_index fuzz_model_book fuzz_model_progress fuzz_model_wire fuzz_peer_words \
	fuzz_policy fuzz_pool_metrics fuzz_pool_object fuzz_remote fuzz_run_machine fuzz_safetensors fuzz_site_settings
endif

grammars = common/contract.cc common/gpus_range.cc common/model_names.cc common/pool_option.cc common/text.cc
fuzz_batch_record = $(grammars) common/fd.cc launcher/record/batch_record.cc
fuzz_model_progress = $(grammars) launcher/base/size_text.cc launcher/record/model_progress.cc
fuzz_catalogue = modelstore/catalogue/catalogue.cc
fuzz_checkpoint_model = checkpoint/format/array_part.cc checkpoint/format/digest.cc checkpoint/format/index.cc \
	checkpoint/format/manifest.cc checkpoint/format/shard_copy.cc checkpoint/read/block_offers.cc \
	checkpoint/read/block_reader.cc checkpoint/read/copy_plan.cc checkpoint/read/step_reader.cc \
	checkpoint/system/block_workers.cc checkpoint/system/file_piece.cc checkpoint/system/file_read.cc \
	checkpoint/system/memory_bin.cc checkpoint/system/memory_reserve.cc checkpoint/system/shared_memory.cc \
	checkpoint/wire/block_hash.cc \
	common/fd.cc common/page_cache.cc common/text.cc modelstore/catalogue/catalogue.cc \
	modelstore/format/model_layout.cc modelstore/loader/checkpoint_model.cc
fuzz_contract = $(grammars)
fuzz_controller_messages = common/controller_address.cc common/text.cc elastic/wire/message.cc
fuzz_csv = common/fd.cc common/text.cc elastic/simulate/csv.cc
fuzz_environment = common/child.cc common/container/mount_grammar.cc common/fd.cc common/resolved.cc common/text.cc \
	spank/container/driver_files.cc spank/container/entrypoint.cc spank/container/hook_variables.cc \
	spank/container/image_variables.cc \
	spank/container/ld_cache.cc spank/container/mount_api.cc spank/container/root_files.cc \
	spank/container/small_tree.cc spank/container/working_directory.cc
fuzz_events = common/fd.cc launcher/record/event_log.cc
fuzz_image_manifest = common/text.cc common/container/image_reference.cc image/layout/manifest.cc \
	image/layout/rc_script.cc
fuzz_index = checkpoint/format/array_part.cc checkpoint/wire/block_hash.cc checkpoint/format/digest.cc checkpoint/format/index.cc \
	checkpoint/system/memory_reserve.cc
fuzz_job_desc = $(grammars) jobsubmit/admission/gres_text.cc jobsubmit/slurmctld/job_desc.cc tests/fuzz/slurm_heap.cc
fuzz_lasting_origin = common/fd.cc common/lasting/lasting.cc common/resolved.cc common/text.cc
fuzz_ld_cache = spank/container/ld_cache.cc common/text.cc
fuzz_model_book = modelstore/book/model_book.cc modelstore/book/room_ledger.cc
fuzz_model_wire = modelstore/wire/control_lines.cc modelstore/wire/control_wire.cc modelstore/wire/gpu_address.cc \
	modelstore/wire/gpu_lines.cc modelstore/wire/model_wire.cc
fuzz_mounts = $(grammars) common/container/image_reference.cc common/container/mount_grammar.cc common/container/options.cc \
	common/container/rights.cc common/container/spec_text.cc
fuzz_peer_words = common/model_names.cc common/munge/munge.cc common/text.cc modelstore/digest/model_digest.cc \
	modelstore/digest/tree_digest.cc modelstore/peerwire/peer_frame.cc modelstore/peerwire/peer_letter.cc \
	modelstore/peerwire/peer_nodes.cc
fuzz_policy = $(grammars) common/container/image_reference.cc jobsubmit/policy/yaml_tree.cc jobsubmit/policy/policy.cc jobsubmit/policy/policy_reader.cc \
	jobsubmit/policy/policy_reader_controller.cc common/controller_address.cc \
	jobsubmit/policy/policy_reader_frameworks.cc jobsubmit/policy/policy_reader_limits.cc \
	jobsubmit/policy/policy_reader_models.cc jobsubmit/policy/policy_reader_values.cc common/container/mount_grammar.cc \
	common/container/options.cc common/container/spec_text.cc
fuzz_pool_metrics = common/text.cc pool/member/prometheus_text.cc
fuzz_pool_object = pool/object/pack.cc
fuzz_remote = common/text.cc modelstore/remote/allow_list.cc modelstore/remote/answer_head.cc \
	modelstore/remote/remote_url.cc modelstore/remote/server_text.cc
fuzz_run_machine = $(grammars) tests/unit/launcher/machine_world.cc tests/unit/launcher/stop_ledger.cc \
	$(patsubst $(TOP)/%,%,$(wildcard $(TOP)/launcher/machine/*.cc)) \
	checkpoint/protocol/attempt_name.cc checkpoint/protocol/coordinator.cc \
	checkpoint/protocol/step_choice.cc common/fd.cc common/child.cc launcher/ranks/gang_start.cc \
	launcher/ranks/hang_detector.cc launcher/ranks/rank_ends.cc launcher/ranks/rank_failure.cc \
	launcher/ranks/rank_layout.cc launcher/ranks/rank_names.cc launcher/ranks/task_end.cc \
	launcher/slurm/node_watch.cc slurm/gres.cc slurm/job.cc slurm/requeue.cc
fuzz_safetensors = common/text.cc modelstore/catalogue/catalogue.cc modelstore/format/model_layout.cc \
	modelstore/format/safetensors.cc modelstore/format/strict_json.cc
fuzz_site_settings = common/fd.cc common/text.cc modelstore/digest/model_digest.cc modelstore/digest/tree_digest.cc \
	modelstore/disktier/disk_records.cc modelstore/remote/allow_list.cc modelstore/remote/remote_url.cc \
	modelstore/remote/site_settings.cc

CLANG = clang++
OPTIMIZE = -O1
packages = fmt yaml-0.1 libxxhash lua5.4-c++ libcrypto libcurl munge
sanitize = -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
flags = -std=c++20 $(OPTIMIZE) -g1 -I$(TOP) $(shell pkg-config --cflags $(packages)) $(sanitize)

all: $(TARGETS)
.PHONY: all

# For the test, which runs each.
list:
	@echo $(TARGETS)
.PHONY: list

.SECONDEXPANSION:
$(TARGETS): $$(patsubst %.cc,obj/%.o,tests/fuzz/$$@.cc $$($$@))
	$(CLANG) $(flags) -o $@ $^ $(shell pkg-config --libs $(packages))

# Half of a source's time went into the standard library's headers.
obj/precompiled.pch: $(TOP)/common/precompiled.h
	@mkdir -p $(@D)
	$(CLANG) $(flags) -Wno-pragma-once-outside-header -MD -MP -MF $(@:.pch=.d) -x c++-header -o $@ $<

obj/%.o: $(TOP)/%.cc obj/precompiled.pch
	@mkdir -p $(@D)
	$(CLANG) $(flags) -include-pch obj/precompiled.pch -MMD -MP -c -o $@ $<

-include $(shell find obj -name '*.d' 2>/dev/null)
