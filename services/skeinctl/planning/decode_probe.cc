#include "services/skeinctl/planning/decode_probe.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services {
namespace {

constexpr int64_t kPromptTokens = 16;
constexpr int64_t kFirstTokens = 2;  // of each stream, before it counts
// A stream is cancelled when it was measured; until all run, the first ones run on.
constexpr int64_t kOutputTokensMax = 1 << 16;
constexpr auto kStartMax = std::chrono::seconds(60);  // until all streams run
constexpr auto kStepMax = std::chrono::seconds(10);   // then, for each token
constexpr auto kIdleMax = std::chrono::seconds(30);
constexpr auto kGlance = std::chrono::milliseconds(20);

absl::Status Stopped() { return absl::CancelledError("interrupted"); }

}  // namespace

// Streams that run now, with how many tokens each has had.
class DecodeProbe::Streams {
 public:
  Streams(ProbeRouter* router, const std::string& model, int64_t count, int64_t tokens)
      : router_(router), board_(std::make_shared<Board>(static_cast<size_t>(count))) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      ids_.push_back(router_->Send(model, kPromptTokens, tokens, {.instances = 1},
                                   std::make_shared<Listener>(board_, i)));
    }
  }
  ~Streams() {
    for (const scheduler::RequestId id : ids_) router_->Cancel(id);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Until each has had so many tokens more than in `since`. DEADLINE_EXCEEDED: not within `time`.
  absl::Status Await(const std::vector<int64_t>& since, int64_t tokens,
                     std::chrono::milliseconds time) {
    const Clock::time_point end = Clock::now() + time;
    std::unique_lock lock(board_->mutex);
    const auto have = [&] {
      if (!board_->ended.ok()) return true;
      for (size_t i = 0; i < since.size(); ++i) {
        if (board_->tokens[i] < since[i] + tokens) return false;
      }
      return true;
    };
    while (!board_->changed.wait_for(lock, kGlance, have)) {  // a signal does not notify
      if (StopSignalled()) return Stopped();
      if (Clock::now() >= end) return absl::DeadlineExceededError("");
    }
    return board_->ended;
  }

  std::vector<int64_t> Tokens() const {
    const std::lock_guard lock(board_->mutex);
    return board_->tokens;
  }

 private:
  struct Board {
    explicit Board(size_t count) : tokens(count) {}
    std::mutex mutex;  // guards all below
    std::condition_variable changed;
    std::vector<int64_t> tokens;
    absl::Status ended;  // of the first that ended by itself
  };
  class Listener final : public RequestListener {
   public:
    Listener(std::shared_ptr<Board> board, size_t stream)
        : board_(std::move(board)), stream_(stream) {}
    void OnAccepted(scheduler::RequestId) override {}
    void OnToken(const scheduler::DeliverToken&) override {
      const std::lock_guard lock(board_->mutex);
      ++board_->tokens[stream_];
      board_->changed.notify_all();
    }
    void OnEnd(const scheduler::End& end) override {
      Ended(end.status.ok() ? absl::ResourceExhaustedError("a stream ended before all ran")
                            : end.status);
    }
    void OnReject(const scheduler::Reject& reject) override { Ended(reject.status); }
    void OnStop() override { Ended(absl::UnavailableError("skeinctl's own router has stopped")); }

   private:
    void Ended(absl::Status status) {
      const std::lock_guard lock(board_->mutex);
      board_->ended.Update(std::move(status));
      board_->changed.notify_all();
    }
    const std::shared_ptr<Board> board_;
    const size_t stream_;
  };

  ProbeRouter* const router_;
  const std::shared_ptr<Board> board_;
  std::vector<scheduler::RequestId> ids_;
};

DecodeProbe::DecodeProbe(ClusterClient* client, std::string model, int64_t tokens_max)
    : client_(client),
      model_(std::move(model)),
      tokens_max_(tokens_max),
      router_(std::make_unique<ProbeRouter>(client->orchestrator())) {}

absl::Status DecodeProbe::AwaitIdle() {
  const Clock::time_point end = Clock::now() + kIdleMax;
  while (true) {
    const auto status = client_->Status();
    if (!status.ok()) return status.status();
    uint64_t busy = 0;
    admin_.clear();
    pool_tokens_ = requests_max_ = std::numeric_limits<int64_t>::max();
    for (const v1::InstanceStatus& one : status->instances()) {
      const v1::RegisterRequest& registration = one.registration();
      if (registration.role() != v1::ROLE_DECODE || registration.model() != model_) continue;
      if (one.load().running() + one.load().waiting() + one.placed_requests() > 0) {
        busy = one.instance();
      }
      admin_[one.instance()] = registration.admin_endpoint();
      const v1::KvSpec& kv = registration.kv();
      pool_tokens_ =
          std::min(pool_tokens_, static_cast<int64_t>(kv.num_blocks() * kv.block_tokens()));
      if (registration.max_requests() == 0) continue;
      requests_max_ = std::min(requests_max_, static_cast<int64_t>(registration.max_requests()));
    }
    if (busy == 0) return absl::OkStatus();
    if (Clock::now() >= end) {
      return absl::FailedPreconditionError(
          absl::StrCat("decode instance ", busy, " has requests; profile an idle cluster"));
    }
    WaitUnlessStopped(kGlance);
    if (StopSignalled()) return Stopped();
  }
}

// Of each stream: as many as fit the pools, with room to spare, so that none has to be preempted.
absl::StatusOr<int64_t> DecodeProbe::OutputTokens(size_t targets, int64_t streams,
                                                  int64_t steps) const {
  const auto each = (streams + static_cast<int64_t>(targets) - 1) / static_cast<int64_t>(targets);
  const int64_t tokens = std::min(
      {tokens_max_ - kPromptTokens, kOutputTokensMax, pool_tokens_ / 4 * 3 / each - kPromptTokens});
  if (each > requests_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an instance takes ", requests_max_, " requests at a time"));
  }
  if (tokens < 2 * steps) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a stream can have ", std::max<int64_t>(tokens, 0), " tokens, fewer than ", 2 * steps));
  }
  return tokens;
}

absl::StatusOr<std::vector<DecodeProbe::Clock::time_point>> DecodeProbe::Read(
    MemberNumbers DecodeWindow::*numbers, std::vector<DecodeWindow>* windows) {
  std::vector<Clock::time_point> times;
  for (DecodeWindow& window : *windows) {
    const Clock::time_point begin = Clock::now();
    auto read = ReadMember(admin_[window.target.instance]);
    if (!read.ok()) {
      return absl::UnavailableError(
          absl::StrCat("instance ", window.target.instance,
                       " did not tell its numbers: ", std::string(read.status().message())));
    }
    window.*numbers = *std::move(read);
    times.push_back(begin + (Clock::now() - begin) / 2);
  }
  return times;
}

absl::StatusOr<std::vector<DecodeSample>> DecodeProbe::Run(const std::vector<DecodeTarget>& targets,
                                                           int32_t size, int64_t streams,
                                                           int64_t steps) {
  if (absl::Status idle = AwaitIdle(); !idle.ok()) return idle;
  const auto tokens = OutputTokens(targets.size(), streams, steps);
  if (!tokens.ok()) return tokens.status();
  std::vector<DecodeWindow> windows;
  for (const DecodeTarget& target : targets) windows.push_back({.target = target});
  Streams running(router_.get(), model_, streams, *tokens);
  const std::vector<int64_t> none(static_cast<size_t>(streams));
  absl::Status status = running.Await(none, kFirstTokens, kStartMax);
  if (absl::IsDeadlineExceeded(status)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(streams, " streams did not all run within ", kStartMax.count(), " s"));
  }
  if (!status.ok()) return status;
  const auto begins = Read(&DecodeWindow::first, &windows);
  if (!begins.ok()) return begins.status();
  status = running.Await(running.Tokens(), steps, steps * kStepMax);
  if (absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError("a stream got no token for too long");
  }
  if (!status.ok()) return status;
  const auto ends = Read(&DecodeWindow::last, &windows);
  if (!ends.ok()) return ends.status();
  for (size_t i = 0; i < windows.size(); ++i) {
    windows[i].seconds = std::chrono::duration<double>((*ends)[i] - (*begins)[i]).count();
  }
  return SamplesOf(windows, size, streams, steps / 2);
}

}  // namespace skein::services
