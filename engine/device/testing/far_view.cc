#include "engine/device/testing/far_view.h"

#include <sys/mman.h>

#include <mutex>
#include <set>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// All views that there are.
struct Registry {
  std::mutex mu;
  std::set<const FarView*> views;
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

FarView::FarView(int fd, size_t offset, size_t bytes) : bytes_(bytes) {
  void* near =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  void* far = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SKEIN_CHECK(near != MAP_FAILED && far != MAP_FAILED);
  near_ = static_cast<std::byte*>(near);
  far_ = static_cast<std::byte*>(far);
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mu);
  registry.views.insert(this);
}

FarView::~FarView() {
  {
    Registry& registry = TheRegistry();
    const std::lock_guard lock(registry.mu);
    registry.views.erase(this);
  }
  munmap(near_, bytes_);
  munmap(far_, bytes_);
}

void* NearOfAny(const void* pointer) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mu);
  for (const FarView* view : registry.views) {
    if (view->Owns(pointer)) return view->Near(pointer);
  }
  return const_cast<void*>(pointer);
}

}  // namespace skein::engine
