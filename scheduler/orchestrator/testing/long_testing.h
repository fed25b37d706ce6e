// A core with decode instances of one node, of 10 blocks of 4 tokens and 4 heads each, for tests of
// requests that fit none of them. So one holds 40 tokens, bound(2) 80, bound(4) 160.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/held_digest.h"
#include "scheduler/orchestrator/testing/core_testing.h"

namespace skein::scheduler {

class LongRequestsTest : public OrchestratorTest {
 protected:
  LongRequestsTest() { Make({}); }
  void Make(const orchestrator::FormationConfig& formations,
            TimeUs gone_kept_us = 3600 * kSecondUs) {
    core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{
        .generation = 1, .formations = formations, .gone_kept_us = gone_kept_us});
    members_.clear();
    RouterConnects(7);
    prefill_ = Up(Role::kPrefill);
  }
  static WorkerIdentity IdentityOf(Role role, uint64_t incarnation) {
    return {.role = role,
            .model = "m",
            .endpoint = "w:" + std::to_string(incarnation),
            .incarnation = {incarnation},
            .shape = {{.num_layers = 1,
                       .kv_heads = 4,
                       .head_dim = 4,
                       .block_tokens = 4,
                       .dtype = DType::kF32},
                      "h"},
            .total_blocks = role == Role::kDecode ? 10 : 100,
            .max_positions = 0,
            .details = "",
            .node = "a",
            .comm_address = "c" + std::to_string(incarnation),
            .max_batch_tokens = 8};
  }
  InstanceId Up(Role role) {
    const uint64_t incarnation = ++incarnations_;
    WorkerIdentity identity = IdentityOf(role, incarnation);
    if (role == Role::kDecode) identity.total_blocks = decode_blocks_;
    identity.node = node_;
    const Effects effects = Do(RegisterCalled{Call(), {identity}});
    const InstanceId id = Of<AnswerRegister>(effects)[0].reply.instance;
    incarnation_of_[id] = incarnation;
    Report(id);
    return id;
  }
  // Four of them, whose communicators are made.
  void UpGroup(int count = 4) {
    for (int i = 0; i < count; ++i) members_.push_back(Up(Role::kDecode));
    for (const CallGroup& order : Of<CallGroup>(Until(now_ + kSecondUs))) {
      made_[order.instance] = order.request.generation;
    }
    ReportAll();
  }
  Effects Report(InstanceId id, std::vector<HeldRequest> held = {},
                 std::vector<EndedRequest> ended = {}) {
    WorkerLoad load;
    load.free_blocks = load.total_blocks = 10;
    load.groups_made = made_[id];
    load.running_requests = running_[id];
    const uint64_t digest = DigestOf(held);
    return Do(ReportCalled{Call(),
                           {.instance = id,
                            .incarnation = {incarnation_of_[id]},
                            .serial = ++serial_,
                            .load = load,
                            .held = std::move(held),
                            .full = true,
                            .ended = std::move(ended),
                            .held_digest = digest}});
  }
  // It leaves; the others make communicators anew.
  void Leave(InstanceId member) {
    Do(UnregisterCalled{Call(), {member, {incarnation_of_[member]}}});
    std::erase(members_, member);
    UpGroup(0);
  }
  Effects ReportAll() {
    now_ += kSecondUs;
    Effects all;
    for (const InstanceId member : members_) {
      for (OrchestratorEffect& effect : Report(member, held_[member])) all.push_back(effect);
    }
    return all;
  }
  Effects Submit(uint64_t serial, int64_t prompt_tokens, int64_t max_tokens = 4,
                 int32_t priority = 0) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = "m";
    spec->prompt_tokens = prompt_tokens;
    spec->max_tokens = max_tokens;
    spec->priority = priority;
    spec->want_prompt_logprobs = want_prompt_logprobs_;
    spec->deadline_us = deadline_us_;
    return Do(SubmitCalled{spec, /*shape=*/{}, accepted_});
  }
  std::string StateOf(uint64_t serial) { return std::string(core_->StateOf({7, serial})); }
  Effects Tell(InstanceId member, uint64_t epoch, FormationTold::Phase phase,
               absl::Status why = {}) {
    return Do(FormationReported{member, {.epoch = epoch, .phase = phase, .why = std::move(why)}});
  }
  // All that were asked prepare, and all are bound. What came of it.
  Effects Complete(const Effects& asked) {
    Effects all;
    const auto add = [&](Effects effects) {
      for (OrchestratorEffect& effect : effects) all.push_back(std::move(effect));
    };
    for (const auto phase : {FormationTold::Phase::kPrepared, FormationTold::Phase::kBound}) {
      for (const CallPrepareFormation& one : Of<CallPrepareFormation>(asked)) {
        add(Tell(one.instance, one.request.epoch, phase));
      }
    }
    return all;
  }
  Effects Ended(const CallAnnounce& announced, const absl::Status& status) {
    return Report(announced.instance, {},
                  {{announced.request.spec->id, announced.request.epoch,
                    status.ok() ? FinishReason::kStop : FinishReason::kError, status}});
  }
  Effects Order(orchestrator::FormationOrder::Act act, std::vector<InstanceId> instances,
                std::string group = "") {
    return Do(FormationCalled{Call(), {act, std::move(instances), std::move(group), 0, {}}});
  }
  // The lead has begun what was announced to it, and reports so from now on.
  void Runs(const CallAnnounce& announced) {
    const RequestId id = announced.request.spec->id;
    Do(TransferOpened{announced.instance, id, announced.request.epoch});
    held_[announced.instance].push_back(
        {.id = id, .epoch = announced.request.epoch, .opened = true});
  }
  std::string FailureOf(const Effects& effects) {
    const std::vector<Failed> failed = Updates<Failed>(effects);
    return failed.empty() ? "" : failed[0].status.ToString();
  }
  std::vector<std::string> Formations() {
    std::vector<std::string> names;
    for (const GroupStatus& group : core_->Snapshot(now_).groups) {
      if (group.role == Role::kPrefill) continue;
      for (const FormationStatus& one : group.formations) names.push_back(one.name);
    }
    return names;
  }

  InstanceId prefill_;
  std::vector<InstanceId> members_;
  std::map<InstanceId, uint64_t> incarnation_of_, made_;
  std::map<InstanceId, int64_t> running_;
  std::map<InstanceId, std::vector<HeldRequest>> held_;
  uint64_t incarnations_ = 0;
  int64_t decode_blocks_ = 10;
  std::string node_ = "a";
  TimeUs deadline_us_ = 0;
  bool accepted_ = false, want_prompt_logprobs_ = false;
};

}  // namespace skein::scheduler
