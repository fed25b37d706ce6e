// StepProgress: how far one step is, between the thread that runs it and those that ask. Nobody
// waits for a layer. Where a device works behind its host, the end of each layer's KV is marked in
// the device's work (Device::Mark), and whoever asks sees which marks the device has passed.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/device/device.h"

namespace skein::engine {

class StepProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // `queued(l)` is called on the thread that runs the step, for l = 0, 1, …, when the work that
  // writes layer l's KV of the sequences that run was given to the device (the host has done it
  // then); never, if none runs. It must not block. Empty: nobody asks for layers.
  explicit StepProgress(std::function<void(int layer)> queued = nullptr,
                        Clock::time_point launched = Clock::now())
      : queued_(std::move(queued)), launched_(launched) {}
  StepProgress(const StepProgress&) = delete;
  StepProgress& operator=(const StepProgress&) = delete;

  bool tells_layers() const { return queued_ != nullptr; }
  // When the step was handed to the engine, which may have been in another one then.
  Clock::time_point launched() const { return launched_; }

  // These two on the thread that runs the step.
  // Layer `layer`'s work is behind what `device` was given so far; null: it is done. `device` lives
  // until End. A device that cannot mark the work of a layer tells it and those behind it as
  // written only at the step's end.
  void Queue(int layer, Device* device);
  // The step has ended. `ok`: the device has done all of it. Else layers that nobody has seen
  // written will never be.
  void End(bool ok);

  // Any thread. How many layers were queued, and how many of these are written. Both only grow.
  int LayersQueued() const;
  int LayersWritten();

 private:
  const std::function<void(int layer)> queued_;
  const Clock::time_point launched_;
  mutable std::mutex mu_;
  int layers_queued_ = 0;
  int layers_written_ = 0;
  Device* device_ = nullptr;
  // Of the layers that are queued and not seen written; nullopt: it could not be marked.
  std::deque<std::optional<uint64_t>> marks_;
};

}  // namespace skein::engine
