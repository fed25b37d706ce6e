// One step of an engine, launched and awaited.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "engine/stepping/step_engine.h"

namespace skein::engine {

// REQUIRES: no other step is in flight, and nobody else polls. Takes the plan's `completed`.
inline CompletedStep RunPlan(StepEngine* engine, StepPlan plan) {
  const auto completed = std::make_shared<std::promise<void>>();  // may be told after it is polled
  plan.completed = [completed](bool) { completed->set_value(); };
  engine->Launch(std::move(plan));
  std::optional<CompletedStep> step = engine->Poll();
  if (!step.has_value()) {
    completed->get_future().wait();
    step = engine->Poll();
  }
  return *std::move(step);
}

}  // namespace skein::engine
