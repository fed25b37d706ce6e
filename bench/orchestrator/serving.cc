// What the orchestrator's one thread pays for a request when messages come and go as bytes: decode,
// numbering of streams, core, encode, at 1k, 10k and 100k requests in flight on 1,024 instances.
//   bazel run --config=opt //bench/orchestrator:serving -- [--trace=FILE] [--seconds=S] [--rate=N]
//
// Workers and the router are emulated: they speak real messages, and their own time does not count.
// Time is virtual but for the orchestrator's: a message waits until those before it are done, so
// the latency of a decision is what a router would see of a thread that has a core of its own.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/orchestrator/prompt_lengths.h"
#include "bench/orchestrator/served_core.h"
#include "bench/planner/states.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/base/held_digest.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "services/codec/codec.h"

namespace skein::bench {
namespace {

using namespace scheduler;  // NOLINT: the messages, all of them
using services::ToProto;

struct Options {
  std::string trace;
  double seconds = 3;     // of virtual time that are measured
  double rate = 10'000;   // requests a second
  int instances = 1024;   // half of them prefill
  double speedup = 6;     // of the instances over LLaMA3-8B on A100
  double sp_speedup = 4;  // of what an SP group costs, whatever the prompt's length, over that
  double in_flight = 0;   // 0: 1k, 10k and 100k
  bool cpu_clock = false;
};

constexpr int64_t kBlocks = 1 << 24;
constexpr double kNetworkUs = 100;  // one way
constexpr double kReportSpacingUs = 2000;
constexpr double kReportSpacingPerRequestUs = 20;
constexpr double kReportEveryUs = 500'000;

// An instance: takes everything at once, and ends what it is told to.
struct Worker {
  uint64_t stream = 0;
  Role role = Role::kPrefill;
  Incarnation incarnation;
  InstanceId instance;
  uint64_t session = 0;
  uint64_t sent = 0;
  uint64_t handled = 0;
  uint64_t serial = 0;
  double said_us = 0;  // when its last message arrives
  double next_report_us = 0;
  bool report_due = false;  // it is in the queue of events
  std::map<RequestId, HeldRequest> held;
  HeldDigest digest;
  // Since its last report:
  std::map<RequestId, HeldRequest> changed;
  std::vector<EndedRequest> ended;

  void Hold(const HeldRequest& one) {
    if (held.insert_or_assign(one.id, one).second) digest.Add(one.id, one.epoch);
    changed[one.id] = one;
  }
  void End(RequestId id, Epoch epoch) {
    if (held.erase(id) > 0) digest.Remove(id, epoch);
    changed.erase(id);
    ended.push_back({id, epoch, FinishReason::kStop, absl::OkStatus()});
  }
};

constexpr uint64_t kRouter = 7;
constexpr uint64_t kRouterStream = 1'000'000;

struct Flying {
  Epoch epoch;
  std::vector<size_t> members;  // prefill workers
  size_t lead = 0;
  size_t decode = 0;
  bool placed = false;  // `decode` is known
};

class Cluster {
 public:
  Cluster(const Options& options, double in_flight);
  void Run(double seconds);  // of virtual time
  void Forget();
  void Print(double in_flight, double planner_us);  // of a plan, alone

 private:
  enum class Kind { kArrive, kSay, kAsk, kReport, kRouterReport, kOpen, kPrefilled, kEnd };
  struct Event {
    double at_us = 0;
    uint64_t order = 0;
    Kind kind = Kind::kArrive;
    size_t worker = 0;
    uint64_t serial = 0;  // of a request
    std::string bytes;    // kSay, of a worker, and kAsk, of the router
    bool operator<(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : order > other.order;
    }
  };

  void Push(double at_us, Kind kind, size_t worker, uint64_t serial, std::string bytes = {});
  void Send(size_t worker, v1::WorkerMessage message, double at_us);
  std::string Stamped(v1::RouterMessage message);  // by the router
  void ReportSoon(size_t worker, double at_us);
  void Report(size_t worker, double at_us);
  void Arrive(double at_us);
  // The orchestrator's thread takes a message that came; returns when it is done.
  template <class Take>
  double Serve(double at_us, Take take);
  void Deliver(const ServedCore::Out& out, double at_us);
  void OnAssign(size_t worker, const v1::AssignRequest& assign, double at_us);
  void Open(uint64_t serial, double at_us);
  void EndAt(size_t worker, RequestId id, Epoch epoch, double at_us);

  Options options_;
  double life_us_;
  PromptLengths lengths_;
  std::unique_ptr<ServedCore> served_;
  std::vector<Worker> workers_;
  std::map<uint64_t, Flying> flying_;
  std::priority_queue<Event> events_;
  uint64_t events_pushed_ = 0;
  uint64_t router_session_ = 0;
  uint64_t router_sent_ = 0;
  uint64_t router_handled_ = 0;
  uint64_t last_ = 0;
  double now_us_ = 0;
  double free_us_ = 0;  // when the orchestrator's thread is
  double busy_s_ = 0;
  double measured_from_us_ = 0;
  uint64_t requests_ = 0;  // that arrived
  uint64_t plans_ = 0;
  uint64_t wide_plans_ = 0;  // on four instances and more
  uint64_t asked_ = 0;       // whose place did not come with the plan
  std::vector<double> decision_us_;
  std::mt19937_64 random_{1};
};

LatencyModel FastModel(int max_sp, const Options& options) {
  std::map<int, SpCoefficients> sizes;
  const LatencyModel base = ExtendedModel(max_sp);
  for (const int sp : base.sp_sizes()) {
    SpCoefficients one = base.CoefficientsAt(base.IndexOf(sp));
    one.a_s /= options.speedup * options.sp_speedup;
    one.b_s_per_token /= options.speedup;
    one.c_s_per_token2 /= options.speedup;
    one.d_s_per_token2 /= options.speedup;
    sizes[sp] = one;
  }
  return *LatencyModel::Make(sizes);
}

Cluster::Cluster(const Options& options, double in_flight)
    : options_(options), life_us_(in_flight / options.rate * 1e6), lengths_(options.trace) {
  PlanningConfig planning{
      .latency = FastModel(64, options),
      .policy = *Policy::Parse("tetris"),
      .tables = {ImprovementRateTable::Constant(0.0), RollingTable::Constant({})}};
  OrchestratorConfig config;
  config.max_requests = 1 << 20;
  config.instance_lease_us = 10 * kSecondUs;
  config.planning = std::make_shared<PlanningConfig>(std::move(planning));
  served_ = std::make_unique<ServedCore>(config, options.cpu_clock);
  served_->Open(kRouterStream);
  v1::RouterMessage router;
  *router.mutable_hello() = ToProto(RouterHello{
      .identity = {.router = kRouter, .endpoint = "10.0.0.2:8000", .host = "r", .details = {}},
      .seen = {},
      .load = {},
      .requests = {},
      .ended = {},
      .stream = 1});
  Push(0, Kind::kAsk, 0, 0, Stamped(std::move(router)));
  for (int i = 0; i < options.instances; ++i) {
    const uint64_t number = static_cast<uint64_t>(i) + 1;
    Worker worker{.stream = number,
                  .role = i % 2 == 0 ? Role::kPrefill : Role::kDecode,
                  .incarnation = {number},
                  .held = {},
                  .ended = {}};
    WorkerIdentity identity;
    identity.role = worker.role;
    identity.model = "m";
    identity.endpoint = "10.0.0.1:" + std::to_string(number);
    identity.incarnation = worker.incarnation;
    identity.shape = {{.num_layers = 32,
                       .kv_heads = 8,
                       .head_dim = 128,
                       .block_tokens = 16,
                       .dtype = DType::kBF16},
                      std::string(64, 'a')};
    identity.total_blocks = kBlocks;
    identity.node = "host" + std::to_string(number / 16);
    if (worker.role == Role::kPrefill) identity.comm_address = std::string(64, 'c');
    workers_.push_back(std::move(worker));
    served_->Open(number);
    v1::WorkerMessage hello;
    RegisterRequest request{.identity = identity, .held = {}, .ended = {}};
    request.load.free_blocks = request.load.total_blocks = kBlocks;
    request.stream = 1;
    *hello.mutable_hello() = ToProto(request);
    Send(workers_.size() - 1, std::move(hello), 0);
  }
  Run(0.1);
  for (size_t i = 0; i < workers_.size(); ++i) {
    ReportSoon(i, now_us_ + kReportEveryUs * static_cast<double>(i) / options.instances);
  }
  Run(0.6);
  Push(now_us_, Kind::kRouterReport, 0, 0);
  Push(now_us_, Kind::kArrive, 0, 0);
}

void Cluster::Push(double at_us, Kind kind, size_t worker, uint64_t serial, std::string bytes) {
  events_.push({at_us, ++events_pushed_, kind, worker, serial, std::move(bytes)});
}

void Cluster::Send(size_t index, v1::WorkerMessage message, double at_us) {
  Worker& worker = workers_[index];
  message.set_session(worker.session);
  message.set_sequence(++worker.sent);
  message.set_acknowledged(worker.handled);
  // In the order of its stream.
  worker.said_us = std::max(worker.said_us, at_us + kNetworkUs);
  Push(worker.said_us, Kind::kSay, index, 0, message.SerializeAsString());
}

std::string Cluster::Stamped(v1::RouterMessage message) {
  message.set_session(router_session_);
  message.set_sequence(++router_sent_);
  message.set_acknowledged(router_handled_);
  return message.SerializeAsString();
}

void Cluster::ReportSoon(size_t index, double at_us) {
  Worker& worker = workers_[index];
  if (worker.report_due) return;
  worker.report_due = true;
  Push(std::max(at_us, worker.next_report_us), Kind::kReport, index, 0);
}

void Cluster::Report(size_t index, double at_us) {
  Worker& worker = workers_[index];
  worker.report_due = false;
  ReportRequest report{.instance = worker.instance, .incarnation = worker.incarnation};
  report.serial = ++worker.serial;
  report.load.free_blocks = report.load.total_blocks = kBlocks;
  for (const auto& [id, held] : std::exchange(worker.changed, {})) report.held.push_back(held);
  report.ended = std::exchange(worker.ended, {});
  report.held_digest = worker.digest.value();
  worker.next_report_us = at_us + kReportSpacingUs +
                          kReportSpacingPerRequestUs * static_cast<double>(report.held.size());
  v1::WorkerMessage message;
  *message.mutable_report() = ToProto(report);
  Send(index, std::move(message), at_us);
}

void Cluster::EndAt(size_t index, RequestId id, Epoch epoch, double at_us) {
  workers_[index].End(id, epoch);
  ReportSoon(index, at_us);
}

template <class Take>
double Cluster::Serve(double at_us, Take take) {
  const double start_us = std::max(at_us, free_us_);
  double before_s = 0;
  for (const double part_s : served_->seconds()) before_s += part_s;
  const std::vector<ServedCore::Out> out = take(static_cast<TimeUs>(start_us));
  double took_s = -before_s;
  for (const double part_s : served_->seconds()) took_s += part_s;
  busy_s_ += took_s;
  free_us_ = start_us + took_s * 1e6;
  for (const ServedCore::Out& one : out) Deliver(one, free_us_ + kNetworkUs);
  return free_us_;
}

void Cluster::Arrive(double at_us) {
  const Lengths lengths = lengths_.Next();
  RequestSpec spec;
  spec.id = {kRouter, ++last_};
  spec.model = "m";
  spec.prompt.assign(static_cast<size_t>(std::max<int64_t>(lengths.prompt, 1)), 1234);
  spec.max_tokens = lengths.output;
  spec.sampling = std::string(24, 's');
  spec.names = {"cmpl-" + std::to_string(last_), "req-" + std::to_string(last_)};
  v1::RouterMessage submit;
  *submit.mutable_submit() = ToProto(SubmitCalled{services::Encode(spec)});
  const std::string bytes = Stamped(std::move(submit));
  flying_.try_emplace(last_);
  ++requests_;
  const double done_us =
      Serve(at_us, [&](TimeUs now) { return served_->FromRouter(kRouterStream, bytes, now); });
  decision_us_.push_back(done_us - at_us);
  const double unit = static_cast<double>((random_() >> 11) + 1) * 0x1p-53;
  Push(at_us - std::log(unit) / options_.rate * 1e6, Kind::kArrive, 0, 0);
}

void Cluster::OnAssign(size_t index, const v1::AssignRequest& assign, double at_us) {
  const uint64_t serial = services::IdOfSpec(assign.spec())->serial;
  const RequestId id{kRouter, serial};
  workers_[index].Hold({.id = id, .epoch = {assign.epoch()}});
  v1::WorkerMessage taken;
  *taken.mutable_assigned() =
      ToProto(AssignReplied{{}, id, {assign.epoch()}, {absl::OkStatus()}, {assign.sequence()}});
  Send(index, std::move(taken), at_us);
  Flying& flying = flying_.at(serial);
  flying.epoch = {assign.epoch()};
  flying.members.push_back(index);
  if (flying.members.size() > 1) {
    if (flying.members.size() == 4) ++wide_plans_;
    return;
  }
  ++plans_;
  flying.lead = index;
  // It runs after a tenth of the request's life, and for another one.
  Push(at_us + life_us_ * 0.1, Kind::kOpen, index, serial);
}

// The plan's first chunk is about to start.
void Cluster::Open(uint64_t serial, double at_us) {
  const Flying& flying = flying_.at(serial);
  const RequestId id{kRouter, serial};
  v1::WorkerMessage message;
  if (!flying.placed) {
    ++asked_;
    const Worker& lead = workers_[flying.lead];
    *message.mutable_place_decode() =
        ToProto(PlaceDecodeRequest{lead.instance, lead.incarnation, id, flying.epoch});
    return Send(flying.lead, std::move(message), at_us);
  }
  workers_[flying.decode].Hold({.id = id, .epoch = flying.epoch, .opened = true});
  *message.mutable_opened() = ToProto(TransferOpened{{}, id, flying.epoch});
  Send(flying.decode, std::move(message), at_us);
  Push(at_us + life_us_ * 0.1, Kind::kPrefilled, 0, serial);
}

void Cluster::Deliver(const ServedCore::Out& out, double at_us) {
  if (out.stream == kRouterStream) {
    v1::OrchestratorRouterMessage message;
    message.ParseFromString(out.bytes);
    router_session_ = message.session();
    ++router_handled_;
    return;
  }
  const size_t index = out.stream - 1;
  Worker& worker = workers_[index];
  v1::OrchestratorMessage message;
  message.ParseFromString(out.bytes);
  ++worker.handled;
  if (message.has_report_taken() && message.report_taken().want_full()) {
    std::fprintf(stderr, "a digest does not fit\n");
    std::abort();
  }
  if (message.has_welcome()) {
    worker.session = message.session();
    worker.instance = {message.welcome().instance()};
  } else if (message.has_assign()) {
    OnAssign(index, message.assign(), at_us);
  } else if (message.has_announce()) {
    const uint64_t serial = services::IdOfSpec(message.announce().spec())->serial;
    flying_.at(serial).decode = index;
    flying_.at(serial).placed = true;
    worker.Hold({.id = {kRouter, serial}, .epoch = {message.announce().epoch()}});
  } else if (message.has_decode_placed()) {
    Push(at_us, Kind::kOpen, index, message.decode_placed().id().serial());
  }
}

void Cluster::Run(double seconds) {
  const double end_us = now_us_ + seconds * 1e6;
  while (!events_.empty() && events_.top().at_us <= end_us) {
    Event event = events_.top();
    events_.pop();
    now_us_ = event.at_us;
    switch (event.kind) {
      case Kind::kArrive:
        Arrive(now_us_);
        break;
      case Kind::kSay:
        Serve(now_us_, [&](TimeUs now) {
          return served_->FromWorker(workers_[event.worker].stream, event.bytes, now);
        });
        break;
      case Kind::kAsk:
        Serve(now_us_,
              [&](TimeUs now) { return served_->FromRouter(kRouterStream, event.bytes, now); });
        break;
      case Kind::kReport:
        Report(event.worker, now_us_);
        break;
      case Kind::kRouterReport: {
        v1::RouterMessage report;
        *report.mutable_report() = ToProto(RouterLoad{});
        const std::string bytes = Stamped(std::move(report));
        Serve(now_us_, [&](TimeUs now) { return served_->FromRouter(kRouterStream, bytes, now); });
        Push(now_us_ + kReportEveryUs, Kind::kRouterReport, 0, 0);
        break;
      }
      case Kind::kOpen:
        Open(event.serial, now_us_);
        break;
      case Kind::kPrefilled: {
        const Flying& flying = flying_.at(event.serial);
        for (const size_t member : flying.members) {
          EndAt(member, {kRouter, event.serial}, flying.epoch, now_us_);
        }
        Push(now_us_ + life_us_ * 0.8, Kind::kEnd, 0, event.serial);
        break;
      }
      case Kind::kEnd: {
        const Flying flying = flying_.extract(event.serial).mapped();
        EndAt(flying.decode, {kRouter, event.serial}, flying.epoch, now_us_);
        v1::RouterMessage ended;
        *ended.mutable_ended() = ToProto(RouterEnd{.id = {kRouter, event.serial},
                                                   .how = RouterEnd::How::kStopToken,
                                                   .why = {},
                                                   .output_tokens = 200,
                                                   .first_token_us = 1000});
        const std::string bytes = Stamped(std::move(ended));
        Serve(now_us_, [&](TimeUs now) { return served_->FromRouter(kRouterStream, bytes, now); });
        break;
      }
    }
    if (served_->core().NextDeadline() <= static_cast<TimeUs>(now_us_)) {
      Serve(now_us_, [&](TimeUs now) {
        served_->Tick(now);
        return std::vector<ServedCore::Out>{};
      });
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (workers_[i].next_report_us + kReportEveryUs < now_us_) ReportSoon(i, now_us_);
      }
    }
  }
  now_us_ = end_us;
}

void Cluster::Forget() {
  served_->Forget();
  decision_us_.clear();
  busy_s_ = 0;
  measured_from_us_ = now_us_;
  requests_ = plans_ = wide_plans_ = asked_ = 0;
}

void Cluster::Print(double in_flight, double planner_us) {
  std::sort(decision_us_.begin(), decision_us_.end());
  const double virtual_s = (now_us_ - measured_from_us_) * 1e-6;
  const double per_request = 1e6 / static_cast<double>(requests_);
  const auto& part_s = served_->seconds();
  const auto percent = [&](ServedCore::Part part) { return 100 * part_s[part] / busy_s_; };
  std::printf(
      "| %7.0f | %8.1f | %5.0f %% | %4.1f + %4.1f | %4.1f | %4.1f | %4.1f | %7.1f | %8.1f | "
      "%6.2f | %6.1f | %4.0f %% | %4.0f %% |\n",
      in_flight, busy_s_ * per_request, 100 * busy_s_ / virtual_s, percent(ServedCore::kDecode),
      percent(ServedCore::kEncode), percent(ServedCore::kStream), percent(ServedCore::kCore),
      100 * planner_us * static_cast<double>(plans_) / (busy_s_ * 1e6),
      decision_us_[decision_us_.size() / 2], decision_us_[decision_us_.size() * 99 / 100],
      served_->report_bytes() / virtual_s / 1e6,
      (served_->worker_bytes() + served_->sent_bytes()) / virtual_s / 1e6,
      100.0 * static_cast<double>(wide_plans_) / static_cast<double>(plans_),
      100.0 * static_cast<double>(asked_) / static_cast<double>(plans_));
  std::fflush(stdout);
}

// The planner alone, on queues of half a second and the same prompts.
double PlannerUs(const Options& options) {
  const int prefill = options.instances / 2;
  const LatencyModel model = FastModel(64, options);
  CdspPlanner planner(model, scheduler::Cluster{.instances = prefill, .node_size = 8});
  PromptLengths lengths(options.trace);
  std::mt19937_64 random(1);
  PrefillPlan plan;
  double took_s = 0;
  constexpr int kPlans = 2000;
  for (int i = 0; i < kPlans; ++i) {
    const RandomState state = Draw(prefill, 0.5, &random);
    const auto begin = std::chrono::steady_clock::now();
    planner.Plan(state.queue_s, std::max<int64_t>(lengths.Next().prompt, 1), {}, &plan);
    took_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return took_s * 1e6 / kPlans;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const size_t equals = arg.find('=');
    const std::string value(equals == std::string_view::npos ? "" : arg.substr(equals + 1));
    if (arg.starts_with("--trace=")) {
      options.trace = value;
    } else if (arg.starts_with("--seconds=")) {
      options.seconds = std::atof(value.c_str());
    } else if (arg.starts_with("--rate=")) {
      options.rate = std::atof(value.c_str());
    } else if (arg.starts_with("--speedup=")) {
      options.speedup = std::atof(value.c_str());
    } else if (arg.starts_with("--sp_speedup=")) {
      options.sp_speedup = std::atof(value.c_str());
    } else if (arg.starts_with("--in_flight=")) {
      options.in_flight = std::atof(value.c_str());
    } else if (arg == "--cpu_clock") {
      options.cpu_clock = true;
    } else if (arg.starts_with("--instances=")) {
      options.instances = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr, "%s: unknown flag\n", argv[i]);
      return 1;
    }
  }
  std::printf("prompts: %s; %d instances, half of them prefill; %.0f requests/s\n",
              PromptLengths(options.trace).from_trace() ? "the Azure trace"
                                                        : "drawn with the Azure trace's quantiles",
              options.instances, options.rate);
  const double planner_us = PlannerUs(options);
  std::printf("planner alone: %.1f us a plan\n", planner_us);
  std::printf(
      "| in flight | us a request | of one core | codec, in + out, %% | stream, %% | core, "
      "%% | planner in it, %% | decision p50, us | p99 | MB/s of reports | MB/s in all | on 4 and "
      "more | placed after the plan |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const double in_flight : {1e3, 1e4, 1e5}) {
    if (options.in_flight > 0 && options.in_flight != in_flight) continue;
    Cluster cluster(options, in_flight);
    cluster.Run(1.5 * in_flight / options.rate + 0.5);
    cluster.Forget();
    cluster.Run(options.seconds);
    cluster.Print(in_flight, planner_us);
  }
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) { return skein::bench::Main(argc, argv); }
