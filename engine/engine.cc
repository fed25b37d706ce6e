#include "engine/engine.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

Engine::~Engine() {
  {
    const std::lock_guard lock(mu_);
    const bool runs = running_ != nullptr || (steps_run_ != StepsRun::kInPoll && !waiting_.empty());
    SKEIN_CHECK_MSG(!runs, "an engine ends while a step runs");
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

SequenceTable& Engine::Sequences() {
  if (sequences_ == nullptr) sequences_ = std::make_unique<SequenceTable>(&Spec());
  return *sequences_;
}

absl::StatusOr<SequenceHandle> Engine::Admit(const SequenceInfo& info) {
  return Sequences().Admit(info);
}

void Engine::Release(SequenceHandle sequence) { Sequences().Release(sequence); }

void Engine::Launch(StepPlan plan) {
  Launched launched = {.step = Sequences().Prepare(std::move(plan)), .before = {}};
  {
    const std::lock_guard lock(mu_);
    if (!completed_.empty() && EndsTheNext(completed_.back().status)) {
      launched.before = completed_.back().status;
    }
    waiting_.push_back(std::move(launched));
  }
  if (steps_run_ == StepsRun::kInPoll) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  wake_.notify_one();
}

std::optional<CompletedStep> Engine::Poll() {
  std::unique_lock lock(mu_);
  if (completed_.empty() && steps_run_ == StepsRun::kInPoll && !waiting_.empty()) {
    RunNext(std::move(lock));
    lock = std::unique_lock(mu_);
  }
  if (completed_.empty()) return std::nullopt;
  CompletedStep first = std::move(completed_.front());
  completed_.pop_front();
  return first;
}

std::optional<StepLayers> Engine::Layers() {
  StepLayers layers;
  std::shared_ptr<StepProgress> progress;
  {
    const std::lock_guard lock(mu_);
    progress = running_;
    layers.number = running_number_;
  }
  if (progress == nullptr || !progress->tells_layers()) return std::nullopt;
  layers.written = progress->LayersWritten();  // first: it is never above what is queued
  layers.queued = progress->LayersQueued();
  return layers;
}

void Engine::Loop() {
  pthread_setname_np(pthread_self(), "engine");
  for (;;) {
    std::unique_lock lock(mu_);
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    RunNext(std::move(lock));
  }
}

void Engine::RunNext(std::unique_lock<std::mutex> lock) {
  std::shared_ptr<PreparedStep> prepared = std::move(waiting_.front().step);
  CompletedStep completed{
      .number = prepared->plan.number, .status = std::move(waiting_.front().before), .results = {}};
  waiting_.pop_front();
  running_ = prepared->progress;
  running_number_ = completed.number;
  lock.unlock();
  if (completed.status.ok()) completed = Run(prepared.get());
  std::vector<std::function<void(bool idle)>> told = {std::move(prepared->plan.completed)};
  prepared.reset();  // its tables may change in place from here on
  lock.lock();
  running_ = nullptr;
  const absl::Status status = completed.status;
  completed_.push_back(std::move(completed));
  while (EndsTheNext(status) && !waiting_.empty()) {
    completed_.push_back({.number = waiting_.front().step->plan.number, .status = status});
    told.push_back(std::move(waiting_.front().step->plan.completed));
    waiting_.pop_front();
  }
  const bool idle = waiting_.empty();
  lock.unlock();
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i]) told[i](idle && i + 1 == told.size());
  }
}

CompletedStep Engine::Run(PreparedStep* prepared) {
  CompletedStep completed{.number = prepared->plan.number, .status = {}, .results = {}};
  const auto started = std::chrono::steady_clock::now();
  prepared->Begin(Spec().vocab_size);
  completed.status = RunPlan(*prepared, &completed.results);
  if (completed.status.ok()) prepared->End(completed.results);
  completed.layers = prepared->progress->LayersWritten();
  completed.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return completed;
}

absl::Status Engine::RunPlan(const PreparedStep& prepared, std::vector<SequenceResult>* results) {
  const StepPlan& plan = prepared.plan;
  if (plan.ring.has_value() && plan.group.has_value()) {
    return absl::InvalidArgumentError(
        "ring and group are both set; a step can be at most one of them");
  }
  if (plan.ring.has_value()) return RunRing(prepared, results);
  if (plan.group.has_value()) return RunGroup(prepared, results);
  return Step(prepared.steps, prepared.progress.get(), results);
}

absl::Status Engine::RunRing(const PreparedStep& prepared, std::vector<SequenceResult>* results) {
  const RingMeeting& meeting = *prepared.plan.ring;
  if (prepared.steps.size() != 1) {
    return absl::InvalidArgumentError("ring: a ring step must have exactly one sequence");
  }
  const absl::StatusOr<RingStep> ring = meeting.enter();
  if (!ring.ok()) return ring.status();
  SequenceStep step = prepared.steps.front();
  step.ring = &*ring;
  absl::Status status = Step({&step, 1}, prepared.progress.get(), results);
  meeting.leave(status);
  return status;
}

absl::Status Engine::RunGroup(const PreparedStep& prepared, std::vector<SequenceResult>* results) {
  const GroupMeeting& meeting = *prepared.plan.group;
  const absl::StatusOr<GroupPart> part = meeting.enter();
  if (!part.ok()) return part.status();
  absl::Status status = StepTogether(*part, prepared.steps, prepared.progress.get(), results);
  meeting.leave(status);
  return status;
}

}  // namespace skein::engine
