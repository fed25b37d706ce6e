#include "services/store/boot_time.h"

#include <ctime>

namespace skein::services {

int64_t BootTimeUs() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace skein::services
