#include "services/router/jobs/jobs_client.h"

#include <utility>

namespace skein::services {
namespace {

// Whether another orchestrator, or the same one later, may answer otherwise.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status);
}

}  // namespace

struct JobsClient::Work {
  Attempt attempt;
  Ended done;
  int64_t until_us = 0;
  int64_t tried_us = 0;  // when the present attempt began
};

JobsClient::JobsClient(JobsClientOptions options, Channels* channels)
    : options_(std::move(options)),
      channels_(channels),
      orchestrators_(options_.orchestrators),
      loop_(kInboxMax) {
  loop_.Start(
      "jobs", [this] { return timers_.empty() ? INT64_MAX : timers_.begin()->first; },
      [this] { RunDue(); });
}

JobsClient::~JobsClient() { Stop(); }

void JobsClient::Stop() {
  if (stopping_.exchange(true)) return;
  calls_.CancelAndWait();
  loop_.RunAndWait([this] {
    while (!timers_.empty()) timers_.extract(timers_.begin()).mapped()();
  });
  loop_.Stop();
}

void JobsClient::After(int64_t delay_us, Task task) {
  if (stopping_.load()) return loop_.Post(std::move(task));
  timers_.emplace(MonotonicUs() + delay_us, std::move(task));
}

void JobsClient::RunDue() {
  const int64_t now_us = MonotonicUs();
  while (!timers_.empty() && timers_.begin()->first <= now_us) {
    timers_.extract(timers_.begin()).mapped()();
  }
}

std::shared_ptr<JobsClient::Stub> JobsClient::StubOf(const std::string& endpoint) {
  return v1::Jobs::NewStub(channels_->Get(endpoint, {tls::Role::kOrchestrator}));
}

bool JobsClient::Failed(const std::string& endpoint, const absl::Status& status) {
  if (OrchestratorIsGone(status)) channels_->Forget(endpoint);
  return orchestrators_.Failed(endpoint, status, MonotonicUs());
}

void JobsClient::Run(Attempt attempt, Ended done) {
  auto work = std::make_shared<Work>();
  work->attempt = std::move(attempt);
  work->done = std::move(done);
  work->until_us = MonotonicUs() + options_.retry_for_us;
  loop_.Post([this, work] {
    orchestrators_.BeginRound();
    Try(work);
  });
}

void JobsClient::Try(const std::shared_ptr<Work>& work) {
  if (stopping_.load()) return work->done(absl::UnavailableError("This router stops. Retry."));
  const std::string endpoint = orchestrators_.Current();
  work->tried_us = MonotonicUs();
  work->attempt(StubOf(endpoint), [this, work, endpoint](const absl::Status& status) {
    loop_.Post([this, work, endpoint, status] { Tried(work, endpoint, status); });
  });
}

void JobsClient::Tried(const std::shared_ptr<Work>& work, const std::string& endpoint,
                       const absl::Status& status) {
  if (!IsPassing(status)) return work->done(status);
  if (stopping_.load()) return Try(work);  // which says so
  const bool another = Failed(endpoint, status);
  // A stream that has carried something for a while is a success that the retries begin anew after.
  const int64_t now_us = MonotonicUs();
  if (now_us - work->tried_us > 2 * options_.call_us) {
    work->until_us = now_us + options_.retry_for_us;
  }
  if (now_us >= work->until_us) {
    return work->done(absl::UnavailableError(
        "No orchestrator that keeps files and batches answers now. Retry later."));
  }
  if (another) return Try(work);
  After(options_.pause_us, [this, work] {
    orchestrators_.BeginRound();
    Try(work);
  });
}

}  // namespace skein::services
