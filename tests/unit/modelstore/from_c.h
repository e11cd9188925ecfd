/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the model's tensor "w" has these bytes. */
int read_from_c(const char* socket, const char* name, const char* wanted);
/* Whether arguments that make no sense are refused, and do no harm. */
int refuses_nonsense(const char* socket);

#ifdef __cplusplus
}
#endif
