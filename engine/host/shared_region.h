// Memory that other processes of this host and user can map. Internal to the engine.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace skein::engine {

class SharedRegion {
 public:
  // Makes a zeroed region; null when there is no memory.
  static std::unique_ptr<SharedRegion> Allocate(size_t bytes);
  // Maps the region that the process `process` (its ThisProcess()) calls `name`. Null: the process
  // has ended or is not visible from here, or it has no such region.
  static std::unique_ptr<SharedRegion> Map(const std::string& process, const std::string& name,
                                           size_t bytes);

  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;

  std::byte* base() const { return base_; }
  // The name for Map, valid while this lives; "" for a region that was mapped.
  const std::string& name() const { return name_; }

 private:
  SharedRegion(std::byte* base, size_t bytes, int fd, std::string name)
      : base_(base), bytes_(bytes), fd_(fd), name_(std::move(name)) {}

  std::byte* const base_;
  const size_t bytes_;
  const int fd_;  // -1 of one that was mapped
  const std::string name_;
};

}  // namespace skein::engine
