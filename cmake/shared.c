/* libmuster.so consists of the objects of libmuster.a; CMake wants a source file of its own. */
typedef int muster_shared_has_no_code;
