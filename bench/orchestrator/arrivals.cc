// Requests a second that OrchestratorCore takes from Submit to the end while many are in flight on
// 128 prefill and 32 decode instances, planned by Tetris. One thread, no network.
//   bazel run --config=opt //bench/orchestrator:arrivals
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/planner/states.h"
#include "scheduler/base/held_digest.h"
#include "scheduler/orchestrator/orchestrator_core.h"

namespace {

using namespace skein::scheduler;  // NOLINT: the messages, all of them
using Clock = std::chrono::steady_clock;

constexpr int kPrefill = 128;
constexpr int kDecode = 32;
constexpr size_t kEndedInAReport = 4;
constexpr int64_t kBlocks = 1 << 24;

// Instances that take everything at once, and end what they are told to.
class Cluster {
 public:
  Cluster();
  void Arrive();
  void EndPrefillOfOldest();
  void EndOldest();
  const std::vector<double>& submit_us() const { return submit_us_; }
  void Forget() { submit_us_.clear(); }

 private:
  struct Worker {
    Incarnation incarnation;
    uint64_t serial = 0;
    std::map<RequestId, Epoch> held;
    std::vector<EndedRequest> ended;  // not yet reported
  };
  struct Flying {
    RequestId id;
    Epoch epoch;
    std::vector<InstanceId> prefill;
    InstanceId decode;
  };

  void Join(Role role, uint64_t incarnation);
  void Report(InstanceId id, Worker& worker);
  void End(InstanceId at, const Flying& request);
  void Do(const OrchestratorEvent& event);
  void Answer(const OrchestratorEffect& effect);

  std::unique_ptr<OrchestratorCore> core_;
  TimeUs now_ = 0;
  uint64_t calls_ = 0;
  std::mt19937_64 random_{1};
  std::map<InstanceId, Worker> workers_;
  std::map<uint64_t, Flying> flying_;  // by serial
  uint64_t last_ = 0;
  uint64_t prefilled_ = 0;
  uint64_t ended_ = 0;
  std::deque<OrchestratorEvent> inbox_;
  std::vector<double> submit_us_;
};

Cluster::Cluster() {
  PlanningConfig planning{.latency = skein::bench::ExtendedModel(kPrefill),
                          .policy = *Policy::Parse("tetris")};
  core_ = std::make_unique<OrchestratorCore>(
      OrchestratorConfig{.generation = 1,
                         .max_requests = 1 << 20,
                         .instance_lease_us = 100'000 * kSecondUs,
                         .request_deadline_us = 100'000 * kSecondUs,
                         .planning = std::make_shared<PlanningConfig>(std::move(planning))});
  for (int i = 0; i < kPrefill + kDecode; ++i) {
    Join(i < kPrefill ? Role::kPrefill : Role::kDecode, static_cast<uint64_t>(i) + 1);
  }
}

void Cluster::Join(Role role, uint64_t incarnation) {
  WorkerIdentity identity;
  identity.role = role;
  identity.model = "m";
  identity.endpoint = "w:" + std::to_string(incarnation);
  identity.incarnation = {incarnation};
  identity.shape = {{.num_layers = 32,
                     .kv_heads = 8,
                     .head_dim = 128,
                     .block_tokens = 16,
                     .dtype = skein::DType::kBF16},
                    "h"};
  identity.total_blocks = kBlocks;
  identity.node = "host" + std::to_string(incarnation / 8);
  if (role == Role::kPrefill) identity.comm_address = "c" + std::to_string(incarnation);
  for (const OrchestratorEffect& effect :
       core_->Handle(RegisterCalled{{++calls_}, {identity}}, now_)) {
    const auto* answer = std::get_if<AnswerRegister>(&effect);
    if (answer == nullptr) continue;
    Worker& worker = workers_[answer->reply.instance];
    worker.incarnation = {incarnation};
    Report(answer->reply.instance, worker);
  }
}

void Cluster::Report(InstanceId id, Worker& worker) {
  ReportRequest report{.instance = id, .incarnation = worker.incarnation};
  report.serial = ++worker.serial;
  report.load.free_blocks = report.load.total_blocks = kBlocks;
  for (const auto& [request, epoch] : worker.held) {
    report.held.push_back({.id = request, .epoch = epoch, .opened = true});
  }
  report.full = true;
  report.held_digest = DigestOf(report.held);
  report.ended = std::move(worker.ended);
  worker.ended.clear();
  Do(ReportCalled{{++calls_}, std::move(report)});
}

void Cluster::End(InstanceId at, const Flying& request) {
  Worker& worker = workers_.at(at);
  worker.held.erase(request.id);
  worker.ended.push_back({request.id, request.epoch, FinishReason::kStop, absl::OkStatus()});
  if (worker.ended.size() >= kEndedInAReport) Report(at, worker);
}

void Cluster::Arrive() {
  now_ += kMillisecondUs;
  auto spec = std::make_shared<RequestHead>();
  spec->id = {7, ++last_};
  spec->model = "m";
  const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
  spec->prompt_tokens = static_cast<int64_t>(4096 * std::exp2(unit * 5));
  spec->max_tokens = 256;
  flying_[last_].id = spec->id;
  Do(SubmitCalled{spec});
}

void Cluster::EndPrefillOfOldest() {
  const Flying& request = flying_.at(++prefilled_);
  for (const InstanceId instance : request.prefill) End(instance, request);
}

void Cluster::EndOldest() {
  const auto oldest = flying_.find(++ended_);
  const Flying request = oldest->second;
  flying_.erase(oldest);
  End(request.decode, request);
}

// And all that follows from it.
void Cluster::Do(const OrchestratorEvent& event) {
  inbox_.push_back(event);
  while (!inbox_.empty()) {
    const OrchestratorEvent next = std::move(inbox_.front());
    inbox_.pop_front();
    const auto start = Clock::now();
    const std::vector<OrchestratorEffect> effects = core_->Handle(next, now_);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    if (std::holds_alternative<SubmitCalled>(next)) submit_us_.push_back(took.count());
    for (const OrchestratorEffect& effect : effects) Answer(effect);
  }
}

void Cluster::Answer(const OrchestratorEffect& effect) {
  if (const auto* assign = std::get_if<CallAssign>(&effect)) {
    const AssignOrder& request = assign->request;
    const RequestId id = request.spec->id;
    workers_.at(assign->instance).held[id] = request.epoch;
    Flying& flying = flying_.at(id.serial);
    flying.epoch = request.epoch;
    flying.prefill.push_back(assign->instance);
    inbox_.push_back(
        AssignReplied{assign->instance, id, request.epoch, {absl::OkStatus()}, request.sequence});
    if (flying.prefill.size() > 1) return;
    if (request.placed.has_value()) {
      inbox_.push_back(TransferOpened{request.placed->decode, id, request.epoch});
    } else {
      inbox_.push_back(PlaceDecodeCalled{{++calls_}, {assign->instance, {1}, id, request.epoch}});
    }
  } else if (const auto* announce = std::get_if<CallAnnounce>(&effect)) {
    const RequestId id = announce->request.spec->id;
    workers_.at(announce->instance).held[id] = announce->request.epoch;
    flying_.at(id.serial).decode = announce->instance;
  } else if (const auto* placed = std::get_if<AnswerPlaceDecode>(&effect)) {
    inbox_.push_back(TransferOpened{placed->reply.placed.decode, placed->id, placed->epoch});
  }
}

void Measure(int in_flight, int in_prefill) {
  Cluster cluster;
  for (int i = 0; i < in_flight; ++i) {
    cluster.Arrive();
    if (i >= in_prefill) cluster.EndPrefillOfOldest();
  }
  cluster.Forget();
  int64_t arrivals = 0;
  const auto begin = Clock::now();
  std::chrono::duration<double> took{};
  while (took.count() < 5) {
    for (int i = 0; i < 20; ++i) {
      cluster.EndPrefillOfOldest();
      cluster.EndOldest();
      cluster.Arrive();
    }
    arrivals += 20;
    took = Clock::now() - begin;
  }
  std::vector<double> submits = cluster.submit_us();
  std::sort(submits.begin(), submits.end());
  std::printf("| %6d | %6d | %8.0f | %8.1f | %8.1f |\n", in_flight, in_prefill,
              static_cast<double>(arrivals) / took.count(), submits[submits.size() / 2],
              submits[submits.size() * 99 / 100]);
}

}  // namespace

int main() {
  std::printf("| in flight | of these in prefill | arrivals/s | median us a Submit | p99 |\n");
  std::printf("|---|---|---|---|---|\n");
  Measure(1000, 200);
  Measure(10000, 500);
  Measure(10000, 2000);
  Measure(10000, 9000);
}
