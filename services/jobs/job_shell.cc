#include "services/jobs/job_shell.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/log/log.h"

namespace skein::services {
namespace {

namespace core = scheduler::jobs;

constexpr int64_t kAgainUs = 1'000'000;
constexpr int64_t kExpireEveryUs = 60'000'000;
constexpr size_t kCommitLines = 512;
constexpr size_t kCommitBytes = size_t{16} << 20;

const char* NameOf(core::JobEnd how) {
  switch (how) {
    case core::JobEnd::kCompleted:
      return "completed";
    case core::JobEnd::kExpired:
      return "expired";
    case core::JobEnd::kCancelled:
      break;
  }
  return "cancelled";
}

// A time of the wall clock in the core's time.
scheduler::TimeUs AtUs(int64_t s) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return MonotonicUs() + s * scheduler::kSecondUs - now_us;
}

}  // namespace

JobShell::JobShell(JobOptions options, Hooks hooks)
    : CoreShell(kInboxMax),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      refusal_(absl::UnavailableError(kNotOpenYet)) {}

JobShell::~JobShell() { Stop(); }

void JobShell::Start() {
  StartCore("jobs", options_.core, core::JobTick{});
  loop_.Post([this] { StopCore(); });
  watch_ = std::thread([this] { Watch(); });
}

void JobShell::Stop() {
  {
    std::lock_guard lock(watch_mutex_);
    stopping_ = true;
  }
  watch_wake_.notify_one();
  if (watch_.joinable()) watch_.join();
  loop_.RunAndWait([this] { Close(absl::UnavailableError("the orchestrator is stopping")); });
  loop_.Stop();
  store_thread_.Stop();
  files_thread_.Stop();
  store_.reset();
}

void JobShell::Watch() {
  std::unique_lock lock(watch_mutex_);
  while (!stopping_) {
    lock.unlock();
    const absl::Status standing = hooks_.standing();
    const core::ClusterLoad load = standing.ok() ? hooks_.load() : core::ClusterLoad{};
    loop_.Post([this, standing, load] { See(standing, load); });
    lock.lock();
    watch_wake_.wait_for(lock, kLookEvery, [this] { return stopping_; });
  }
}

absl::Status JobShell::Ready() const {
  if (absl::Status standing = hooks_.standing(); !standing.ok()) return standing;
  std::lock_guard lock(refusal_mutex_);
  return refusal_;
}

void JobShell::Refuse(absl::Status why) {
  std::lock_guard lock(refusal_mutex_);
  refusal_ = std::move(why);
}

// --- Opening and closing.

void JobShell::See(const absl::Status& standing, const core::ClusterLoad& load) {
  const int64_t now_us = MonotonicUs();
  load_ = load;
  if (!standing.ok()) {
    refused_ = false;
    if (phase_ != Phase::kClosed) Close(standing);
    return;
  }
  if (phase_ == Phase::kClosed && now_us >= open_at_us_) return Open();
  if (phase_ != Phase::kOpen) return;
  Handle(core::LoadSeen{load});
  TellWaiting();
  std::vector<std::function<void()>> due;
  const auto not_due = std::stable_partition(
      later_.begin(), later_.end(), [now_us](const auto& one) { return one.first > now_us; });
  for (auto it = not_due; it != later_.end(); ++it) due.push_back(std::move(it->second));
  later_.erase(not_due, later_.end());
  for (const auto& task : due) task();
  if (now_us < expire_at_us_) return;
  expire_at_us_ = now_us + kExpireEveryUs;
  Store([](JobStore* store) {
    if (absl::Status s = store->ExpireFiles(); !s.ok()) {
      LogWarning("files whose time is up were not deleted", {{"reason", std::string(s.message())}});
    }
  });
}

void JobShell::TellWaiting() {
  if (!hooks_.waiting) return;
  for (auto& [model, lines] : lines_waiting_) lines = 0;
  for (const auto& [number, job] : known_) {
    if (!job.model.empty()) lines_waiting_[job.model] += core_->Waiting(number);
  }
  for (const auto& [model, lines] : lines_waiting_) hooks_.waiting(model, lines);
  std::erase_if(lines_waiting_, [](const auto& one) { return one.second == 0; });
}

void JobShell::Open() {
  phase_ = Phase::kOpening;
  const uint64_t term = ++term_;
  store_thread_.Post([this, term] {
    store_.reset();
    auto opened = JobStore::Open({.folder = options_.folder,
                                  .leads = [this] { return hooks_.standing().ok(); },
                                  .jobs_max = options_.jobs_max});
    absl::Status status = opened.status();
    std::vector<JobStore::Loaded> jobs;
    if (status.ok()) {
      auto loaded = (*opened)->Load(AtUs);
      status = loaded.status();
      if (status.ok()) jobs = *std::move(loaded);
    }
    if (status.ok()) {
      store_ = *std::move(opened);
      store_term_ = term;
      failed_ = false;
    }
    loop_.Post([this, term, status, jobs = std::move(jobs)]() mutable {
      Opened(term, status, std::move(jobs));
    });
  });
}

void JobShell::Opened(uint64_t term, const absl::Status& status,
                      std::vector<JobStore::Loaded> jobs) {
  if (term != term_ || phase_ != Phase::kOpening) return;
  if (!status.ok()) {
    LogError("the folder of jobs cannot be used",
             {{"folder", options_.folder}, {"reason", std::string(status.message())}});
    // FAILED_PRECONDITION would tell clients not to call again; but the folder may be mended.
    Refuse(absl::IsFailedPrecondition(status) ? absl::UnavailableError(status.message()) : status);
    refused_ = true;
    phase_ = Phase::kClosed;
    open_at_us_ = MonotonicUs() + 5 * kAgainUs;
    return;
  }
  LogInfo("jobs are served",
          {{"folder", options_.folder}, {"jobs", static_cast<int64_t>(jobs.size())}});
  phase_ = Phase::kOpen;
  refused_ = false;
  commits_ = std::make_shared<CommitQueue>();
  Refuse(absl::OkStatus());
  BeginCore(options_.core, core::LoadSeen{load_});
  for (JobStore::Loaded& job : jobs) {
    Know(job.event.job, job.status);
    Handle(std::move(job.event));
  }
}

void JobShell::Close(const absl::Status& why) {
  if (phase_ == Phase::kOpen) {
    LogInfo("jobs are not served any more", {{"reason", std::string(why.message())}});
  }
  AddTotals(&before_);
  phase_ = Phase::kClosed;
  ++term_;
  open_at_us_ = MonotonicUs() + kAgainUs;
  Refuse(absl::UnavailableError(kNotOpenYet));
  StopCore();
  for (auto& [call, peer] : peers_) peer.stream->Close(ToGrpc(why));
  peers_.clear();
  known_.clear();
  TellWaiting();
  numbers_.clear();
  results_.clear();
  later_.clear();
  store_thread_.Post([this] { store_.reset(); });
}

void JobShell::Know(uint64_t number, const v1::JobStatus& status) {
  known_[number] = {status.id(), status.endpoint(), status.created_s(), status.model(),
                    status.owner()};
  numbers_[status.id()] = number;
}

void JobShell::Gone(uint64_t number, const std::string& outcome) {
  const auto it = known_.find(number);
  if (it == known_.end()) return;
  const std::string id = it->second.id;
  LogInfo("a job has ended", {{"job", id}, {"outcome", outcome}});
  ++ended_[outcome];
  Handle(core::JobGone{number});
  numbers_.erase(id);
  known_.erase(it);
}

// --- The store's thread.

void JobShell::Later(std::function<void()> task) {
  later_.emplace_back(MonotonicUs() + kAgainUs, std::move(task));
}

void JobShell::Store(std::function<void(JobStore*)> task) {
  store_thread_.Post([this, term = term_, task = std::move(task)] {
    if (store_ != nullptr && store_term_ == term) task(store_.get());
  });
}

void JobShell::Back(uint64_t term, std::function<void()> task) {
  loop_.Post([this, term, task = std::move(task)] {
    if (term == term_ && phase_ == Phase::kOpen) task();
  });
}

absl::Status JobShell::Told(absl::Status status) {
  if (!absl::IsAborted(status)) return status;
  absl::Status told = absl::UnavailableError(status.message());
  Back(store_term_, [this, status = std::move(status)] { Close(status); });
  return told;
}

void JobShell::Failed(uint64_t term, const char* what, uint64_t job, const absl::Status& status,
                      std::function<void()> again) {
  Back(term, [this, what, job, status, again = std::move(again)] {
    const auto known = known_.find(job);
    LogWarning(what, {{"job", known == known_.end() ? "" : known->second.id},
                      {"folder", options_.folder},
                      {"reason", std::string(status.message())}});
    ++store_failed_;
    if (absl::IsAborted(status)) return Close(status);
    Later(again);
  });
}

void JobShell::Created(const JobStore::Job& job) {
  LogInfo("a job was created", {{"job", job.status.id()}, {"input", job.status.input_file()}});
  Back(store_term_, [this, job] {
    Know(job.number, job.status);
    Handle(core::AddJob{.job = job.number, .expires = AtUs(job.status.expires_s())});
  });
}

void JobShell::Cancelled(const JobStore::Job& job) {
  Back(store_term_, [this, number = job.number] { Handle(core::CancelJob{number}); });
}

void JobShell::FillProgress(const core::JobSnapshot& snapshot, JobStore::Job* job) const {
  const auto it = snapshot.jobs.find(job->number);
  v1::JobStatus& status = job->status;
  const bool ended =
      status.state() == v1::JOB_STATE_FAILED || status.state() == v1::JOB_STATE_COMPLETED ||
      status.state() == v1::JOB_STATE_EXPIRED || status.state() == v1::JOB_STATE_CANCELLED;
  if (ended || it == snapshot.jobs.end()) return;
  const core::JobProgress& progress = it->second;
  status.set_completed(progress.counts.completed);
  status.set_failed(progress.counts.failed);
  status.set_prompt_tokens(progress.counts.tokens.prompt);
  status.set_cached_tokens(progress.counts.tokens.cached);
  status.set_output_tokens(progress.counts.tokens.output);
  status.set_running(static_cast<uint64_t>(progress.running));
  status.set_tokens_per_s(progress.tokens_per_s);
  status.set_left_s(static_cast<uint64_t>(progress.left_s + 0.999));
  status.set_late(progress.late);
}

void JobShell::On(const core::CheckInput& effect) {
  Store([this, term = term_, number = effect.job](JobStore* store) {
    CheckSlice(store, term, number);
  });
}

void JobShell::CheckSlice(JobStore* store, uint64_t term, uint64_t number) {
  auto checked = store->CheckInput(number);
  const auto again = [this, number] { On(core::CheckInput{number}); };
  if (!checked.ok())
    return Failed(term, "a job's input was not checked", number, checked.status(), again);
  if (!checked->has_value()) return Back(term, again);
  Back(term, [this, number, checked = **std::move(checked)]() mutable {
    if (!checked.ok) return Gone(number, "failed");
    const auto known = known_.find(number);
    if (known != known_.end()) known->second.model = checked.model;
    Handle(core::JobChecked{number, std::move(checked.lines)});
  });
}

void JobShell::On(const core::EndJob& effect) {
  Store([this, term = term_, effect](JobStore* store) { EndSlice(store, term, effect); });
}

void JobShell::EndSlice(JobStore* store, uint64_t term, const core::EndJob& effect) {
  const auto ended = store->EndJob(effect.job, effect.how);
  const auto again = [this, effect] { On(effect); };
  if (!ended.ok())
    return Failed(term, "a job's output was not written", effect.job, ended.status(), again);
  if (!*ended) return Back(term, again);
  Back(term, [this, effect] {
    Gone(effect.job, NameOf(effect.how));
    Store([this, term = term_, effect](JobStore* store) { CleanSlice(store, term, effect.job); });
  });
}

// What it leaves after a failure is deleted when the folder is opened again.
void JobShell::CleanSlice(JobStore* store, uint64_t term, uint64_t number) {
  const auto all = store->Clean(number);
  if (!all.ok() || *all) return;
  Back(term, [this, term, number] {
    Store([this, term, number](JobStore* store) { CleanSlice(store, term, number); });
  });
}

// --- Results.

void JobShell::On(const core::KeepResult& effect) {
  auto result = results_.extract(effect.payload);
  if (result.empty()) return;
  bool post = false;
  {
    std::lock_guard lock(commits_->mutex);
    commits_->results.push_back(std::move(result.mapped()));
    post = !std::exchange(commits_->posted, true);
  }
  if (post) PostCommit(commits_);
}

void JobShell::PostCommit(const std::shared_ptr<CommitQueue>& queue) {
  Store([this, term = term_, queue](JobStore* store) { Commit(store, term, queue); });
}

void JobShell::On(const core::DropResult& effect) { results_.erase(effect.payload); }

void JobShell::Commit(JobStore* store, uint64_t term, const std::shared_ptr<CommitQueue>& queue) {
  std::vector<LineResult> results;
  {
    std::lock_guard lock(queue->mutex);
    for (size_t bytes = 0;
         !queue->results.empty() && results.size() < kCommitLines && bytes < kCommitBytes;
         queue->results.pop_front()) {
      bytes += queue->results.front().body.size();
      results.push_back(std::move(queue->results.front()));
    }
  }
  const auto again = [this, queue] { PostCommit(queue); };
  if (absl::Status status = store->KeepResults(results); !status.ok()) {
    {
      std::lock_guard lock(queue->mutex);
      queue->results.insert(queue->results.begin(), std::make_move_iterator(results.begin()),
                            std::make_move_iterator(results.end()));
    }
    failed_ = true;
    Back(term, [this] { Handle(core::StoreStands{false}); });
    return Failed(term, "results of jobs were not kept", 0, status, again);
  }
  const bool stands_again = std::exchange(failed_, false);
  std::vector<core::LineKey> keys;
  keys.reserve(results.size());
  for (const LineResult& result : results) keys.push_back(result.key);
  Back(term, [this, keys = std::move(keys), stands_again] {
    if (stands_again) Handle(core::StoreStands{true});
    for (const core::LineKey& key : keys) Handle(core::ResultKept{key});
  });
  bool more = false;
  {
    // `posted` stays true until here, so that a failing store is tried by one task at a time.
    std::lock_guard lock(queue->mutex);
    more = queue->posted = !queue->results.empty();
  }
  if (more) Back(term, again);
}

void JobShell::AddTotals(core::JobSnapshot* totals) const {
  if (phase_ != Phase::kOpen) return;
  const core::JobSnapshot snapshot = core_->Snapshot(MonotonicUs());
  totals->completed += snapshot.completed;
  totals->failed += snapshot.failed;
  totals->returned += snapshot.returned;
  totals->duplicate += snapshot.duplicate;
}

std::optional<JobFigures> JobShell::Figures() {
  std::optional<JobFigures> figures;
  loop_.RunAndWait([this, &figures] {
    figures.emplace();
    figures->serves = phase_ == Phase::kOpen;
    figures->ended = ended_;
    figures->refused = refused_;
    figures->store_failed = store_failed_;
    if (figures->serves) figures->snapshot = core_->Snapshot(MonotonicUs());
    figures->snapshot.completed = before_.completed;
    figures->snapshot.failed = before_.failed;
    figures->snapshot.returned = before_.returned;
    figures->snapshot.duplicate = before_.duplicate;
    AddTotals(&figures->snapshot);
    for (const auto& [number, job] : known_) {
      int64_t& oldest = figures->oldest_created_s;
      oldest = oldest == 0 ? job.created_s : std::min(oldest, job.created_s);
    }
  });
  return figures;
}

}  // namespace skein::services
