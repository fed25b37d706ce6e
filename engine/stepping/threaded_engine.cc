#include "engine/stepping/threaded_engine.h"

#include <pthread.h>

#include <utility>

namespace skein::engine {

ThreadedEngine::ThreadedEngine(Engine* engine, Completed completed)
    : inline_(engine), notify_(std::move(completed)), thread_([this] {
        pthread_setname_np(pthread_self(), "engine");
        Loop();
      }) {}

ThreadedEngine::~ThreadedEngine() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ThreadedEngine::Launch(StepPlan plan) {
  std::shared_ptr<PreparedStep> prepared = inline_.Prepare(std::move(plan));
  {
    std::lock_guard lock(mu_);
    waiting_.push_back(std::move(prepared));
  }
  wake_.notify_one();
}

std::optional<CompletedStep> ThreadedEngine::Poll() {
  std::lock_guard lock(mu_);
  if (completed_.empty()) return std::nullopt;
  CompletedStep first = std::move(completed_.front());
  completed_.pop_front();
  return first;
}

std::optional<StepLayers> ThreadedEngine::Layers() {
  StepLayers layers;
  std::shared_ptr<StepProgress> progress;
  {
    const std::lock_guard lock(mu_);
    progress = running_;
    layers.number = running_number_;
  }
  if (progress == nullptr || !progress->tells_layers()) return std::nullopt;
  layers.queued = progress->LayersQueued();
  layers.written = progress->LayersWritten();
  return layers;
}

void ThreadedEngine::Loop() {
  for (;;) {
    std::shared_ptr<PreparedStep> prepared;
    std::optional<CompletedStep> ended;  // without being run
    {
      std::unique_lock lock(mu_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      prepared = std::move(waiting_.front());
      waiting_.pop_front();
      // The one before may have failed when this one was not launched yet.
      if (!completed_.empty() && EndsTheNext(completed_.back().status)) {
        ended = CompletedStep{.number = prepared->plan.number, .status = completed_.back().status};
      }
      running_ = prepared->progress;
      running_number_ = prepared->plan.number;
    }
    CompletedStep completed = ended.has_value() ? *std::move(ended) : inline_.Run(prepared.get());
    prepared.reset();  // its tables may change in place from here on
    bool idle = false;
    {
      std::lock_guard lock(mu_);
      running_ = nullptr;
      const absl::Status status = completed.status;
      completed_.push_back(std::move(completed));
      while (EndsTheNext(status) && !waiting_.empty()) {
        completed_.push_back({.number = waiting_.front()->plan.number, .status = status});
        waiting_.pop_front();
      }
      idle = waiting_.empty();
    }
    notify_(idle);
  }
}

}  // namespace skein::engine
