#include "scheduler/simulator/tenants/tenant_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "scheduler/base/request.h"
#include "scheduler/fairness/fair_order.h"
#include "scheduler/fairness/tenant_queues.h"
#include "scheduler/orchestrator/decode/decode_placement.h"
#include "scheduler/router/client_requests.h"
#include "scheduler/simulator/random.h"
#include "scheduler/worker/prefill/plan_queue.h"

namespace skein::scheduler {
namespace {

constexpr uint64_t kRouter = 1;
constexpr const char* kModel = "m";

TimeUs Us(double seconds) { return static_cast<TimeUs>(std::llround(seconds * 1e6)); }
double Seconds(TimeUs us) { return static_cast<double>(us) * 1e-6; }

class World {
 public:
  explicit World(const TenantRunConfig& config)
      : config_(config),
        requests_({.max_streams = config.max_streams, .max_queued = config.max_queued}, &snapshot_),
        decodes_(static_cast<size_t>(config.decode_instances)) {
    run_.tenants.resize(config.loads.size());
    for (int i = 0; i < config.prefill_instances; ++i) prefills_.emplace_back(config);
    for (size_t i = 0; i < config.loads.size(); ++i) {
      random_.emplace_back(config.seed * 1000 + i);
      NextArrival(i, 0);
    }
  }

  TenantRun Run() {
    while (!events_.empty() && run_.status.ok()) {
      const auto event = events_.extract(events_.begin());
      now_ = event.key().first;
      Handle(event.mapped());
      Settle();
      if (config_.check) Check();
    }
    run_.end_s = Seconds(now_);
    return std::move(run_);
  }

 private:
  struct Event {
    enum class Kind { kArrival, kPrefilled, kDecoded } kind;
    size_t index = 0;  // of the load or the instance
  };
  struct Job {
    size_t load = 0;
    HeadPtr spec;
    TimeUs arrived_us = 0;
    PlanSequence sequence;
    size_t prefill = 0;
    std::optional<size_t> decode;  // it has a place there
    DecodePlacement::Place place;
    bool computed = false;
    int64_t tokens = 0;  // of the answer
    TimeUs first_us = 0;
  };
  struct Prefill {
    explicit Prefill(const TenantRunConfig& config)
        : queue(config.ahead, config.prefill), batch(config.prefill) {}
    PlanQueue queue;
    BatchScheduler batch;
    std::vector<StepItem> step;  // that runs
    TenantQueues queues;
  };
  struct Decode {
    int64_t placed = 0;
    std::vector<RequestId> sequences;  // that decode
    std::vector<RequestId> step;       // that runs
  };

  void At(TimeUs at_us, Event event) { events_.emplace(std::pair(at_us, ++last_event_), event); }
  Job& JobOf(RequestId id) { return jobs_.at(id); }

  static PlanQueue::Place PlaceOf(const Job& job) {
    return {.sequence = job.sequence,
            .id = job.spec->id,
            .tenant = job.spec->tenant,
            .weight = job.spec->tenant_weight};
  }

  void NextArrival(size_t load, TimeUs from_us) {
    const double gap_s = random_[load].Exponential(1 / config_.loads[load].requests_per_s);
    const TimeUs at_us = from_us + Us(gap_s);
    if (Seconds(at_us) < config_.seconds) At(at_us, {Event::Kind::kArrival, load});
  }

  int64_t About(size_t load, int64_t tokens) {
    return std::max<int64_t>(
        2, std::llround(static_cast<double>(tokens) * (0.5 + random_[load].Uniform())));
  }

  void Handle(const Event& event) {
    switch (event.kind) {
      case Event::Kind::kArrival:
        return Arrive(event.index);
      case Event::Kind::kPrefilled:
        return EndPrefillStep(prefills_[event.index]);
      case Event::Kind::kDecoded:
        return EndDecodeStep(decodes_[event.index]);
    }
  }

  void Arrive(size_t load) {
    const TenantLoad& of = config_.loads[load];
    auto spec = std::make_shared<RequestHead>();
    spec->id = {kRouter, ++last_serial_};
    spec->model = kModel;
    spec->prompt_tokens = About(load, of.prompt_tokens);
    spec->max_tokens = About(load, of.output_tokens);
    if (config_.tell_tenants) {
      spec->tenant = of.name;
      spec->tenant_weight = of.weight;
    }
    spec->ttft_goal_us = of.ttft_goal_us;
    NextArrival(load, now_);
    ++run_.tenants[load].sent;
    if (!requests_.WhyFull(*spec, now_).empty()) {
      ++run_.tenants[load].refused;
      if (of.ttft_goal_us > 0) ++run_.tenants[load].goals_missed;
      return;
    }
    jobs_[spec->id] = {.load = load, .spec = spec, .arrived_us = now_, .decode = {}, .place = {}};
    ClientRequest request;
    request.spec = spec;
    request.arrived_us = now_;
    requests_.Add(std::move(request));
  }

  // What is due after an event, on the way of a request.
  void Settle() {
    while (const ClientRequest* request = requests_.Admit(now_)) Assign(request->spec->id);
    for (Prefill& prefill : prefills_) AdmitPrompts(prefill);
    PlaceWaiting();
    for (size_t i = 0; i < prefills_.size(); ++i) StartPrefillStep(i);
    for (size_t i = 0; i < decodes_.size(); ++i) BeginDecodeStep(i);
  }

  void Assign(RequestId id) {
    Job& job = JobOf(id);
    const RequestHead& spec = *job.spec;
    const auto least = std::min_element(
        prefills_.begin(), prefills_.end(), [&spec](const Prefill& a, const Prefill& b) {
          return a.queues.TokensBefore(spec.tenant, spec.prompt_tokens) <
                 b.queues.TokensBefore(spec.tenant, spec.prompt_tokens);
        });
    job.prefill = static_cast<size_t>(least - prefills_.begin());
    job.sequence = {++last_sequence_};
    least->queues.Add(spec.tenant, spec.prompt_tokens);
    const TimeUs goal_us = job.spec->ttft_goal_us;
    least->queue.Wait(PlaceOf(job), goal_us > 0 ? job.arrived_us + goal_us : kNever);
  }

  void AdmitPrompts(Prefill& prefill) {
    while (const std::optional<RequestId> first = prefill.queue.First(now_)) {
      Job& job = JobOf(*first);
      const RequestHead& spec = *job.spec;
      if (!prefill.queue.MayEnterFront(spec.tenant)) return;
      prefill.queue.Serve(PlaceOf(job), spec.prompt_tokens);
      prefill.queue.EnterFront(spec.id, spec.tenant, spec.prompt_tokens);
      prefill.batch.Add(spec.id, job.sequence, spec.prompt_tokens, 0, false, OwnerOf(spec));
      prefill.batch.PutLast(spec.id, true);
      job.place = {placement_.NextNumber(), spec.priority};
      const TimeUs goal_us = spec.ttft_goal_us;
      placement_.Wait(kModel, job.place, spec.id,
                      {.tenant = spec.tenant,
                       .weight = spec.tenant_weight,
                       .latest_us = goal_us > 0 ? job.arrived_us + goal_us : kNever});
      placement_.SetAsking(kModel, job.place, true);
    }
  }

  void PlaceWaiting() {
    while (const std::optional<RequestId> first = placement_.FirstReady(kModel, now_)) {
      const auto least =
          std::min_element(decodes_.begin(), decodes_.end(),
                           [](const Decode& a, const Decode& b) { return a.placed < b.placed; });
      if (least->placed >= config_.decode_sequences) return;
      ++least->placed;
      Job& job = JobOf(*first);
      placement_.Serve(kModel, job.place, job.spec->prompt_tokens);
      job.decode = static_cast<size_t>(least - decodes_.begin());
      if (job.computed) {
        HandOff(job);
      } else {
        prefills_[job.prefill].batch.PutLast(*first, false);
      }
    }
  }

  void StartPrefillStep(size_t index) {
    Prefill& prefill = prefills_[index];
    if (!prefill.step.empty()) return;
    prefill.step = prefill.batch.Plan();
    if (prefill.step.empty()) return;
    int64_t tokens = 0;
    for (const StepItem& item : prefill.step) tokens += item.count;
    const double took_s =
        config_.prefill_step_s + config_.prefill_token_s * static_cast<double>(tokens);
    At(now_ + Us(took_s), {Event::Kind::kPrefilled, index});
  }

  void EndPrefillStep(Prefill& prefill) {
    prefill.batch.Complete();
    for (const StepItem& item : std::exchange(prefill.step, {})) {
      if (!item.sample) continue;
      prefill.batch.Remove(item.id);
      Job& job = JobOf(item.id);
      prefill.queues.Remove(job.spec->tenant, job.spec->prompt_tokens);
      job.computed = true;
      if (job.decode.has_value()) HandOff(job);
    }
  }

  // Its first token goes to the client.
  void HandOff(Job& job) {
    prefills_[job.prefill].queue.LeaveFront(job.spec->id);
    job.first_us = now_;
    decodes_[*job.decode].sequences.push_back(job.spec->id);
    Deliver(job);
  }

  void Deliver(Job& job) {
    ClientRequest& request = requests_.at(job.spec->id);
    if (++job.tokens == 1) requests_.SetState(request, ClientRequest::State::kStreaming);
    ++request.delivered;
    requests_.NoteDelivered(request);
  }

  void BeginDecodeStep(size_t index) {
    Decode& decode = decodes_[index];
    if (!decode.step.empty() || decode.sequences.empty()) return;
    decode.step = decode.sequences;
    int64_t kv_tokens = 0;
    for (const RequestId id : decode.step) kv_tokens += jobs_.at(id).spec->prompt_tokens;
    const double took_s =
        config_.decode.Seconds(1, 1, static_cast<int64_t>(decode.step.size()), kv_tokens);
    At(now_ + Us(took_s), {Event::Kind::kDecoded, index});
  }

  void EndDecodeStep(Decode& decode) {
    for (const RequestId id : std::exchange(decode.step, {})) {
      Job& job = JobOf(id);
      Deliver(job);
      if (job.tokens < job.spec->max_tokens) continue;
      TenantFigures& figures = run_.tenants[job.load];
      const TimeUs ttft_us = job.first_us - job.arrived_us;
      figures.ttft_s.push_back(Seconds(ttft_us));
      figures.tpot_s.push_back(Seconds(now_ - job.first_us) / static_cast<double>(job.tokens - 1));
      if (job.spec->ttft_goal_us > 0) {
        ++(ttft_us <= job.spec->ttft_goal_us ? figures.goals_met : figures.goals_missed);
      }
      --decode.placed;
      decode.sequences.erase(std::find(decode.sequences.begin(), decode.sequences.end(), id));
      requests_.Erase(requests_.at(id), now_);
      jobs_.erase(id);
    }
  }

  void Check() {
    run_.status = requests_.CheckInvariants();
    if (run_.status.ok()) run_.status = placement_.CheckInvariants();
    for (const Prefill& prefill : prefills_) {
      if (run_.status.ok()) run_.status = prefill.queue.CheckInvariants();
      if (run_.status.ok()) run_.status = prefill.batch.CheckInvariants();
    }
  }

  const TenantRunConfig& config_;
  RouterSnapshot snapshot_;
  ClientRequests requests_;
  std::deque<Prefill> prefills_;
  std::vector<Decode> decodes_;
  DecodePlacement placement_;
  std::vector<Random> random_;  // of each load: it sends the same whatever the others do
  std::map<RequestId, Job> jobs_;
  std::map<std::pair<TimeUs, uint64_t>, Event> events_;
  uint64_t last_event_ = 0;
  uint64_t last_serial_ = 0;
  uint64_t last_sequence_ = 0;
  TimeUs now_ = 0;
  TenantRun run_;
};

}  // namespace

TenantRun RunTenants(const TenantRunConfig& config) { return World(config).Run(); }

double PercentileOf(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

}  // namespace skein::scheduler
