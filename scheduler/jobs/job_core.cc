#include "scheduler/jobs/job_core.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace skein::scheduler::jobs {
namespace {

absl::Status Violated(int number, const LineKey& key, const char* what) {
  return absl::InternalError(
      absl::StrCat("JobCore ", number, ": line ", key.line, " of job ", key.job, " ", what));
}

}  // namespace

JobCore::JobCore(const JobCoreConfig& config) : config_(config), room_(config.room) {}

std::vector<JobEffect> JobCore::Handle(const JobEvent& event, TimeUs now) {
  now_ = std::max(now_, now);
  if (started_us_ == kNever) started_us_ = now_;
  effects_.clear();
  std::visit([this](const auto& one) { On(one); }, event);
  ExpireJobs();
  ExpireRouters();
  GiveLines();
  return std::move(effects_);
}

TimeUs JobCore::NextDeadline() const {
  TimeUs next = running_.empty() ? kNever : running_.begin()->first;
  for (const auto& [id, router] : routers_) {
    if (router.stream == 0 || !router.lines.empty()) next = std::min(next, router.until_us);
  }
  for (const auto& [expires, number] : with_ready_) {
    const Job& job = jobs_.at(number);
    const bool passed = job.passes > 0 && job.lines.given() == 0 && job.passed_until > now_;
    if (passed) next = std::min(next, job.passed_until);
  }
  const bool settles = started_us_ != kNever && now_ < started_us_ + config_.settle_us;
  if (settles && !with_ready_.empty()) next = std::min(next, started_us_ + config_.settle_us);
  return next;
}

JobCore::Job* JobCore::Find(uint64_t job) {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second;
}

void JobCore::On(const AddJob& event) {
  const auto [it, fresh] = jobs_.try_emplace(event.job);
  if (!fresh) return;
  Job& job = it->second;
  job.expires = event.expires;
  job.checked = event.checked || event.end.has_value();
  job.counts = event.counts;
  job.lines = JobLines(event.lines);
  if (event.end.has_value()) {
    job.end = event.end;
    return EndIfDone(event.job, &job);
  }
  running_.insert({job.expires, event.job});
  IndexReady(event.job, job);
  if (!job.checked) effects_.push_back(CheckInput{event.job});
  EndIfDone(event.job, &job);
}

void JobCore::On(const JobChecked& event) {
  Job* const job = Find(event.job);
  if (job == nullptr || job->checked) return;
  job->checked = true;
  job->lines = JobLines(event.lines);
  IndexReady(event.job, *job);
  EndIfDone(event.job, job);
}

void JobCore::On(const JobGone& event) {
  const Job* const job = Find(event.job);
  if (job == nullptr) return;
  WithdrawAll(event.job);
  keeping_.erase(keeping_.lower_bound({event.job, 0}), keeping_.lower_bound({event.job + 1, 0}));
  running_.erase({job->expires, event.job});
  with_ready_.erase({job->expires, event.job});
  jobs_.erase(event.job);
}

void JobCore::On(const CancelJob& event) {
  Job* const job = Find(event.job);
  if (job != nullptr) BeginEnd(event.job, job, JobEnd::kCancelled);
}

void JobCore::On(const RouterConnected& event) {
  Router& router = routers_[event.router];
  streams_.erase(router.stream);
  streams_[event.stream] = event.router;
  router.stream = event.stream;
  router.room = event.room;
  router.until_us = now_ + config_.lease_us;
  const std::set<LineKey> held(event.held.begin(), event.held.end());
  std::vector<LineKey> lost;
  std::set_difference(router.lines.begin(), router.lines.end(), held.begin(), held.end(),
                      std::back_inserter(lost));
  for (const LineKey& key : lost) TakeBack(&router, key);
  for (const LineKey& key : held) Claim(&router, key);
}

void JobCore::Claim(Router* router, const LineKey& key) {
  if (router->lines.contains(key)) return;
  if (IsReady(key)) return Give(router, key);
  effects_.push_back(WithdrawLine{router->stream, key});
}

void JobCore::On(const RouterDisconnected& event) {
  const auto it = streams_.find(event.stream);
  if (it == streams_.end()) return;
  Router& router = routers_.at(it->second);
  router.stream = 0;
  router.until_us = std::min(router.until_us, now_ + config_.away_us);
  streams_.erase(it);
}

void JobCore::On(const LineAnswered& event) {
  Router* const router = Renew(event.stream);
  Job* const job = Find(event.key.job);
  const auto state =
      job != nullptr && !job->end.has_value() ? job->lines.StateOf(event.key.line) : std::nullopt;
  if (state == JobLines::State::kKeeping) {
    keeping_[event.key].streams.push_back(event.stream);
  }
  if (state != JobLines::State::kReady && state != JobLines::State::kGiven) {
    ++duplicate_;
    if (router != nullptr) Release(router, event.key);
    effects_.push_back(DropResult{event.payload});
    if (state == JobLines::State::kKeeping) return;
    effects_.push_back(AcknowledgeLine{event.stream, event.key});
    return;
  }
  for (auto& [id, one] : routers_) {
    if (!one.lines.contains(event.key)) continue;
    Release(&one, event.key);
    if (&one != router && one.stream != 0) {
      effects_.push_back(WithdrawLine{one.stream, event.key});
    }
  }
  job->passes = 0;
  job->passed_until = 0;
  job->lines.Keep(event.key.line);
  IndexReady(event.key.job, *job);
  keeping_[event.key] = {event.ok, event.tokens, {event.stream}};
  effects_.push_back(KeepResult{event.key, event.payload});
}

void JobCore::On(const LineReturned& event) {
  Router* const router = Renew(event.stream);
  if (router == nullptr || !router->lines.contains(event.key)) return;
  TakeBack(router, event.key);
  Job& job = jobs_.at(event.key.job);
  if (now_ < job.passed_until) return;  // it was given before the line that was returned first
  const TimeUs pass_us = config_.pass_us << std::min(job.passes++, 16);
  job.passed_until = now_ + std::min(pass_us, config_.pass_max_us);
}

void JobCore::On(const ResultKept& event) {
  auto kept = keeping_.extract(event.key);
  if (kept.empty()) return;
  const Keeping& result = kept.mapped();
  for (const uint64_t stream : result.streams) {
    effects_.push_back(AcknowledgeLine{stream, event.key});
  }
  Job& job = jobs_.at(event.key.job);
  const int64_t estimated = job.lines.TokensOf(event.key.line);
  job.lines.Done(event.key.line);
  int64_t tokens = 0;
  if (result.ok) {
    ++job.counts.completed;
    ++completed_;
    job.counts.tokens.prompt += result.tokens.prompt;
    job.counts.tokens.cached += result.tokens.cached;
    job.counts.tokens.output += result.tokens.output;
    tokens = static_cast<int64_t>(result.tokens.prompt + result.tokens.output);
  } else {
    ++job.counts.failed;
    ++failed_;
  }
  job.pace.Count(tokens, estimated, now_);
  EndIfDone(event.key.job, &job);
}

void JobCore::On(const LoadSeen& event) { room_.See(event.load, in_flight_, now_); }

JobCore::Router* JobCore::Renew(uint64_t stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return nullptr;
  Router& router = routers_.at(it->second);
  router.until_us = now_ + config_.lease_us;
  return &router;
}

bool JobCore::IsReady(const LineKey& key) {
  const Job* const job = Find(key.job);
  return job != nullptr && !job->end.has_value() &&
         job->lines.StateOf(key.line) == JobLines::State::kReady;
}

void JobCore::Give(Router* router, const LineKey& key) {
  Job& job = jobs_.at(key.job);
  job.lines.Give(key.line);
  job.pace.Begin(now_);
  IndexReady(key.job, job);
  router->lines.insert(key);
  ++in_flight_;
}

void JobCore::Release(Router* router, const LineKey& key) {
  in_flight_ -= static_cast<int64_t>(router->lines.erase(key));
}

void JobCore::TakeBack(Router* router, const LineKey& key) {
  Release(router, key);
  Job& job = jobs_.at(key.job);
  job.lines.TakeBack(key.line);
  IndexReady(key.job, job);
  ++returned_;
}

void JobCore::TakeBackAll(Router* router) {
  while (!router->lines.empty()) {
    const LineKey key = *router->lines.begin();
    // It may only have been silent: it is not to compute more than it has room for.
    if (router->stream != 0) effects_.push_back(WithdrawLine{router->stream, key});
    TakeBack(router, key);
  }
}

void JobCore::BeginEnd(uint64_t number, Job* job, JobEnd how) {
  if (job->end.has_value()) return;
  running_.erase({job->expires, number});
  WithdrawAll(number);
  job->end = how;
  IndexReady(number, *job);
  EndIfDone(number, job);
}

void JobCore::WithdrawAll(uint64_t job) {
  for (auto& [id, router] : routers_) {
    for (;;) {
      const auto it = router.lines.lower_bound({job, 0});
      if (it == router.lines.end() || it->job != job) break;
      const LineKey key = *it;
      if (router.stream != 0) effects_.push_back(WithdrawLine{router.stream, key});
      TakeBack(&router, key);
    }
  }
}

void JobCore::EndIfDone(uint64_t number, Job* job) {
  // An input that cannot be read is checked again and again, but only until the job's time is up.
  const bool judged = job->checked || job->end == JobEnd::kExpired;
  if (job->end_ordered || !judged || job->lines.keeping() > 0) return;
  if (!job->end.has_value()) {
    if (job->lines.left() > 0) return;
    job->end = JobEnd::kCompleted;
    running_.erase({job->expires, number});
  }
  job->end_ordered = true;
  effects_.push_back(EndJob{number, *job->end});
}

void JobCore::IndexReady(uint64_t number, const Job& job) {
  if (job.lines.ready() > 0 && !job.end.has_value()) {
    with_ready_.insert({job.expires, number});
  } else {
    with_ready_.erase({job.expires, number});
  }
}

void JobCore::ExpireJobs() {
  while (!running_.empty() && running_.begin()->first <= now_) {
    const uint64_t number = running_.begin()->second;
    BeginEnd(number, &jobs_.at(number), JobEnd::kExpired);
  }
}

void JobCore::ExpireRouters() {
  for (auto it = routers_.begin(); it != routers_.end();) {
    Router& router = it->second;
    if (router.until_us > now_) {
      ++it;
      continue;
    }
    TakeBackAll(&router);
    it = router.stream == 0 ? routers_.erase(it) : std::next(it);
  }
}

JobCore::Router* JobCore::RouterWithRoom() {
  Router* most = nullptr;
  int64_t most_room = 0;
  for (auto& [id, router] : routers_) {
    const int64_t room = router.room - static_cast<int64_t>(router.lines.size());
    if (router.stream == 0 || router.until_us <= now_ || room <= most_room) continue;
    most = &router;
    most_room = room;
  }
  return most;
}

void JobCore::GiveLines() {
  if (!store_stands_ || now_ < started_us_ + config_.settle_us) return;
  for (auto next = with_ready_.begin(); next != with_ready_.end() && in_flight_ < room_.limit();) {
    const JobOrder order = *next;
    const auto [expires, number] = order;
    const Job& job = jobs_.at(number);
    if (!MayGive(job)) {
      ++next;
      continue;
    }
    Router* const router = RouterWithRoom();
    if (router == nullptr) return;
    const LineKey key{number, *job.lines.Next()};
    Give(router, key);
    effects_.push_back(GiveLine{router->stream, key, expires == kNever ? kNever : expires - now_});
    next = with_ready_.lower_bound(order);  // `order` itself, unless that was its last ready line
  }
}

bool JobCore::MayGive(const Job& job) const {
  return job.passes == 0 || (now_ >= job.passed_until && job.lines.given() == 0);
}

bool JobCore::Gives(uint64_t stream, const LineKey& key) const {
  const auto it = streams_.find(stream);
  return it != streams_.end() && routers_.at(it->second).lines.contains(key);
}

JobSnapshot JobCore::Snapshot(TimeUs now) const {
  now = std::max(now, now_);
  JobSnapshot snapshot;
  for (const auto& [number, job] : jobs_) {
    JobProgress& one = snapshot.jobs[number];
    one.checked = job.checked;
    one.end = job.end;
    one.counts = job.counts;
    one.running = job.lines.given();
    one.left = job.lines.left();
    one.tokens_per_s = job.pace.TokensPerSecond(now);
    if (job.end.has_value() || one.left == 0) continue;
    const double left_s = job.pace.SecondsFor(job.lines.tokens_left(), now);
    one.left_s = std::max(left_s, 0.0);
    one.late = job.expires != kNever && left_s * 1e6 > static_cast<double>(job.expires - now);
  }
  snapshot.in_flight = in_flight_;
  snapshot.limit = room_.limit();
  snapshot.routers = static_cast<int64_t>(streams_.size());
  snapshot.completed = completed_;
  snapshot.failed = failed_;
  snapshot.returned = returned_;
  snapshot.duplicate = duplicate_;
  return snapshot;
}

int64_t JobCore::Waiting(uint64_t job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() || it->second.end.has_value() ? 0 : it->second.lines.ready();
}

absl::Status JobCore::CheckInvariants() const {
  std::map<LineKey, int> holders;
  for (const auto& [id, router] : routers_) {
    for (const LineKey& key : router.lines) ++holders[key];
  }
  if (static_cast<int64_t>(holders.size()) != in_flight_) {
    return absl::InternalError("JobCore 2: lines in flight are not counted right");
  }
  int64_t given = 0;
  int64_t keeping = 0;
  for (const auto& [number, job] : jobs_) {
    if (absl::Status status = job.lines.CheckInvariants(); !status.ok()) {
      return absl::InternalError(absl::StrCat("JobCore 1: job ", number, ": ", status.message()));
    }
    given += job.lines.given();
    keeping += job.lines.keeping();
    const bool indexed = with_ready_.contains({job.expires, number});
    if (indexed != (job.lines.ready() > 0 && !job.end.has_value())) {
      return absl::InternalError(absl::StrCat("JobCore 4: job ", number, " is not in the index"));
    }
    if (job.end.has_value() && job.lines.given() > 0) {
      return absl::InternalError(absl::StrCat("JobCore 5: job ", number, " ends and is computed"));
    }
  }
  for (const auto& [key, count] : holders) {
    const auto job = jobs_.find(key.job);
    const bool is_given =
        job != jobs_.end() && job->second.lines.StateOf(key.line) == JobLines::State::kGiven;
    if (!is_given || count != 1) return Violated(2, key, "is not given to exactly one router");
  }
  if (given != in_flight_) return absl::InternalError("JobCore 2: a given line has no router");
  for (const auto& [key, one] : keeping_) {
    const auto job = jobs_.find(key.job);
    if (job == jobs_.end() || job->second.lines.StateOf(key.line) != JobLines::State::kKeeping) {
      return Violated(3, key, "is not being kept");
    }
  }
  if (keeping != static_cast<int64_t>(keeping_.size())) {
    return absl::InternalError("JobCore 3: a result that is being kept is not known");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::jobs
