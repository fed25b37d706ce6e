// Slot: lets long-lived threads use a component that exists only for part of the process's life.
#pragma once

#include <mutex>
#include <shared_mutex>

namespace skein::services {

// Thread-safe.
template <typename T>
class Slot {
 public:
  // `component` is not owned; call Take before it is destroyed.
  void Put(T* component) {
    std::lock_guard lock(mutex_);
    component_ = component;
  }
  // Waits until no thread uses the component.
  void Take() { Put(nullptr); }

  // Runs `use` on the component. False: there is none now.
  template <typename Use>
  bool With(Use use) const {
    std::shared_lock lock(mutex_);
    if (component_ == nullptr) return false;
    use(*component_);
    return true;
  }

 private:
  mutable std::shared_mutex mutex_;
  T* component_ = nullptr;
};

}  // namespace skein::services
