#include "engine/stepping/threaded_engine.h"

#include <pthread.h>

#include <utility>

namespace skein::engine {

ThreadedEngine::ThreadedEngine(Engine* engine, std::function<void()> completed)
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
  std::shared_ptr<const PreparedStep> prepared = inline_.Prepare(std::move(plan));
  {
    std::lock_guard lock(mu_);
    next_ = std::move(prepared);
  }
  wake_.notify_one();
}

std::optional<CompletedStep> ThreadedEngine::Poll() {
  std::lock_guard lock(mu_);
  return std::exchange(completed_, std::nullopt);
}

void ThreadedEngine::Loop() {
  for (;;) {
    std::shared_ptr<const PreparedStep> prepared;
    {
      std::unique_lock lock(mu_);
      wake_.wait(lock, [this] { return stopping_ || next_ != nullptr; });
      if (stopping_) return;
      prepared = std::exchange(next_, nullptr);
    }
    CompletedStep completed = inline_.Run(*prepared);
    prepared.reset();  // its tables may change in place from here on
    {
      std::lock_guard lock(mu_);
      completed_ = std::move(completed);
    }
    notify_();
  }
}

}  // namespace skein::engine
