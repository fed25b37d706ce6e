// Files and batches belong to the tenant of the API key that they came with; another tenant's are
// not there. Keys of no tenant share what belongs to nobody, and without keys all is everybody's.
#pragma once

#include "services/http/message.h"
#include "services/router/access/caller.h"

namespace skein::services {

template <class Message>
void SetOwner(const http::Request& request, Message* message) {
  if (request.caller != nullptr) message->set_owner(request.caller->tenant);
}

}  // namespace skein::services
