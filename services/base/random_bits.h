// Random bits for names and seeds. Not for secrets.
#pragma once

#include <cstdint>
#include <string>

namespace skein::services {

uint64_t RandomBits();
std::string RandomHex();  // 32 hexadecimal digits

}  // namespace skein::services
