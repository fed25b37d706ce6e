// A place for a component that is there for a part of the process's life, for threads that are
// there longer.
#pragma once

#include <mutex>
#include <shared_mutex>

namespace skein::services {

// Thread-safe.
template <typename T>
class Slot {
 public:
  // `component` is not owned; Take it out before it goes.
  void Put(T* component) {
    std::lock_guard lock(mutex_);
    component_ = component;
  }
  // Waits for those that use it.
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
